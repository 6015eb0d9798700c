package finding

import (
	"io"
	"net/url"
	"slices"
	"strings"
)

const sarifSchema = "https://json.schemastore.org/sarif-2.1.0.json"

// The parts of SARIF 2.1.0 that a report of ours has.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID    string    `json:"id"`
		Short sarifText `json:"shortDescription"`
		Help  sarifText `json:"help"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI    string `json:"uri"`
		BaseID string `json:"uriBaseId"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
	}
)

// SARIF writes findings as SARIF 2.1.0, for code hosts and editors. Paths are
// relative to %SRCROOT%, the agent's folder. The rules of findings that rules
// does not list are added with their hint as help.
func SARIF(w io.Writer, fs []Finding, rules []Rule, version string) error {
	listed, index := sarifRules(fs, rules)
	results := make([]sarifResult, 0, len(fs))
	for _, f := range fs {
		message := f.Message
		if f.Hint != "" {
			message += " (" + f.Hint + ")"
		}
		level := "error"
		if f.Severity == Warning {
			level = "warning"
		}
		physical := sarifPhysical{Artifact: sarifArtifact{URI: relativeURI(f.File), BaseID: "%SRCROOT%"}}
		if f.Line > 0 {
			physical.Region = &sarifRegion{StartLine: f.Line, StartColumn: max(f.Column, 0)}
		}
		results = append(results, sarifResult{
			RuleID: f.Rule, RuleIndex: index[f.Rule], Level: level,
			Message: sarifText{message}, Locations: []sarifLocation{{physical}},
		})
	}
	return write(w, sarifLog{Schema: sarifSchema, Version: "2.1.0", Runs: []sarifRun{{
		Tool:       sarifTool{sarifDriver{Name: "belay", Version: version, Rules: listed}},
		ColumnKind: "unicodeCodePoints",
		Results:    results,
	}}})
}

func sarifRules(fs []Finding, rules []Rule) ([]sarifRule, map[string]int) {
	all := slices.Clone(rules)
	for _, f := range fs {
		all = append(all, Rule{ID: f.Rule, Summary: f.Rule, Help: f.Hint})
	}
	listed, index := []sarifRule{}, map[string]int{}
	for _, r := range all {
		if _, ok := index[r.ID]; ok {
			continue
		}
		help := r.Help
		if help == "" {
			help = r.Summary // a help text may not be empty
		}
		index[r.ID] = len(listed)
		listed = append(listed, sarifRule{ID: r.ID, Short: sarifText{r.Summary}, Help: sarifText{help}})
	}
	return listed, index
}

// relativeURI escapes each part of a path; "a b/c.py" is "a%20b/c.py".
func relativeURI(file string) string {
	if file == "" {
		return "."
	}
	parts := strings.Split(file, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	uri := strings.Join(parts, "/")
	if strings.Contains(parts[0], ":") {
		return "./" + uri // "a:b.py" would read as a scheme
	}
	return uri
}
