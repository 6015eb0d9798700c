// Package job is a durable job: code that asks the outside world by name and
// goes on from the kept answers after its process died.
//
// A flow is ordinary Go. It sees nothing of the world but [Steps]:
//
//	func merge(s job.Steps, in job.Order) (json.RawMessage, error) {
//		diff, err := job.Ask(s, job.Call{Key: "diff", Kind: "tool", Input: in.Input, Limit: time.Minute})
//		if err != nil {
//			return nil, err // this process is done with the job: return at once
//		}
//		if diff.Failure != nil {
//			return nil, job.Fail("ToolError", diff.Failure.Message)
//		}
//		now, err := s.Now("asked")
//		if err != nil {
//			return nil, err
//		}
//		yes, err := s.Await(job.Question{Key: "approve", Kind: "approval", Input: diff.Value, Until: now.Add(24 * time.Hour)})
//		if err != nil {
//			return nil, err
//		}
//		if yes.Failure != nil { // nobody decided in time
//			return nil, job.Fail("Refused", yes.Failure.Message)
//		}
//		done, err := job.Ask(s, job.Call{Key: "merge", Kind: "tool", Input: yes.Value, Once: true})
//		...
//	}
//
// # What holds
//
// Answers are found by the name of their call, never by count, and an answer is
// on disk before the flow sees it. When the process dies, another [Run] starts
// the flow from its beginning on the answers there are, asks nothing of them
// again, and comes to the place where it stopped. For that the flow must be
// deterministic: no clock, no goroutine, no map order, no randomness but what it
// asks for (package jobtest has a check of the code and a simulation).
//
// A call that asks with another input than its record has ends the job with
// [HistoryDiffers]: an answer to another question is never given.
//
// A call begun without an answer is begun again, and the history shows both
// tries. A call that may run only once is not: it comes back as [Unknown], and
// the flow decides what then, for example asks a person.
//
// # Waiting
//
// While some branch of a job ([Steps.Each]) does something, those that wait for
// a decision wait in memory and go on the moment it comes. When all wait, the
// job is parked: its goroutines end, and it costs nothing until a decision, a
// deadline or a cancellation wakes it.
//
// # The pieces
//
// [Journal] is where jobs and their answers are kept; a store implements it. A
// [Runner] runs the jobs that an engine has claimed from a journal, one [Run]
// each; package localjob is such an engine. [Replay] runs a flow against a
// history and reports where they differ. [Inner] lets the loop of models and
// tools (package step) run inside a job.
package job
