// Package mcphost runs MCP servers, as processes or behind URLs, and calls their
// functions.
//
// A [Server] is one configured server. It starts when it is first needed:
//
//	s, err := mcphost.Open(mcphost.Config{
//		ID:      "github",
//		Command: []string{"python", "-m", "acme_github.server"},
//		Env:     map[string]string{"GITHUB_TOKEN": token},
//		Logger:  log,
//	})
//	if err != nil { … }                // the configuration is at fault
//	defer s.Close(ctx)
//	tools, err := s.Tools(ctx)         // names, schemas, annotations
//	answer := s.Call(ctx, mcphost.CallRequest{
//		Tool:      "merge",
//		Arguments: json.RawMessage(`{"branch": "main"}`),
//		Timeout:   2 * time.Second,
//	})
//
// # How a call ends
//
// A call has an [Answer] whatever happens, and its outcome tells whether the
// function ran: it did ([OK], [Error]), it may have ([Timeout], [Unknown]), it did
// not ([Unavailable]). Failure says in words what happened: the time that ran out,
// the exit status, the HTTP status. A call that went out is never made again, so
// that a function which merges a branch does not merge it twice.
//
// A call's time counts from the request to a server that is ready. Before that the
// call waits for the start as long as a start may take: 30 s, told apart as Waited.
// When the time runs out the server is sent a cancellation, and what it answers
// then is dropped.
//
// Value is the answer in the server's own bytes: keys in their order, long numbers
// with all their digits. [Answer.Object] finds the object in the three forms in
// which servers give it:
//
//	{"content": [{"type": "text", "text": "{\"decision\": \"allow\"}"}]}
//	{"content": […], "structuredContent": {"decision": "allow"}}
//	{"content": […], "structuredContent": {"result": {"decision": "allow"}}}
//
// The third is an SDK's wrapping only when the text beside it is not wrapped too.
//
// # Servers that misbehave
//
// They harm nobody but themselves:
//
//   - A line on standard output that is no message, such as a banner, goes to the
//     log; so does standard error. A line is cut at 4 KiB, of more than 100 lines a
//     second the rest is counted, and values that the server was given by name are
//     masked.
//   - A message of more than 16 MiB ends the server. Of a server behind a URL it ends
//     the call.
//   - A server that is not ready in 30 s is ended.
//   - After a call that ran out of time the server is asked for a sign of life. One
//     that gives none for 5 s is ended once the calls that were there before have
//     ended too: one function that blocks for ever would stop all the others.
//   - A server that ended is started again by the next call: at once the first time,
//     then with a growing rest before it.
//
// # Processes
//
// A server has a clean environment: PATH, HOME, LANG, TMPDIR and what its
// configuration names. It leads a process group of its own. To end it, its input is
// closed; then the group is sent SIGTERM, then SIGKILL. When the server has ended,
// whoever is left in the group is ended too, also one that holds the pipes. When
// this process dies, however that happens, the input closes and, on Linux, the
// system kills the server.
//
// # URLs
//
// Streamable HTTP only. Redirects are refused, for headers may hold secrets; an
// answer is bounded; a session that the server has forgotten is opened anew. A
// request refused with 3xx or 4xx counts as one that never went out. After 5xx
// nobody can tell.
//
// # Protocol
//
// The official SDK speaks it. A session opens with "initialize" in the version of
// 2025-11-25, and with "server/discover" when the server refuses that. What servers
// ask of a client (samples, roots, forms to fill in) is answered with an error,
// pings excepted.
package mcphost
