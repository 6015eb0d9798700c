// Package convtest tests agents with conversations: a YAML file says what the user
// writes and what should come of it, and the whole agent runs on it, with its hooks
// and tools in Python. Only the model is a script, or a recording.
//
//	file, findings := convtest.Read("my-agent/tests/booking.yml")
//	report, err := convtest.Run(ctx, convtest.Config{App: app.Config{Dir: "my-agent"}}, []*convtest.File{file})
//	report.WriteSummary(os.Stdout)
//	if !report.OK() { … }
//
// [Read] is strict: a key that means nothing would be an expectation that nobody
// checks. [Run] gives each file a fresh data folder and an agent of its own, on which
// its conversations run one after another. A turn is compared with what is written of
// it, and with nothing else. [Report] says which hooks, tools, skills and blocks no
// test has reached: a hook that never fired was not tested by what passed.
//
// [Record] goes the other way: of a kept conversation it makes a test that passes
// when nothing has changed.
package convtest
