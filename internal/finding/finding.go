// Package finding holds what a check reports: where something is wrong, what,
// and how to mend it.
//
// Checks return findings in any order. [Clean] makes one list of them; [Text],
// [JSON] and [SARIF] write it for people, programs and code hosts; [HasErrors]
// says whether the agent may serve. Messages and hints never hold a value that
// might be a secret.
package finding

// Severity says whether a finding keeps an agent from serving.
type Severity string

// The severities. Error keeps an agent from serving; Warning does not.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Finding is one thing wrong with an agent's folder.
type Finding struct {
	File     string   `json:"file"`             // relative to the agent's folder, with slashes
	Line     int      `json:"line,omitempty"`   // from 1; 0 when the whole file is meant
	Column   int      `json:"column,omitempty"` // from 1; 0 when unknown
	Rule     string   `json:"rule"`             // such as "unknown-key", "bare-decorator"
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint"` // what to do about it, in one sentence
}
