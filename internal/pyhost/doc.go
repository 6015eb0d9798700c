// Package pyhost runs an agent's Python hooks and tools in worker processes.
//
// [Load] starts a worker in the agent's own interpreter, lets it import the
// agent's modules and learns from it which hooks and tools there are:
//
//	host, err := pyhost.Load(ctx, pyhost.Config{Dir: dir, Logger: log})
//	if err != nil { … }               // Python itself cannot run; the error says what to do
//	defer host.Close(ctx)
//	for _, f := range host.Findings() { … } // the agent's modules are at fault
//	engine := hook.NewEngine(host.Hooks()…) // each Hook has this Host
//
// # How calls run
//
// Calls with the same key go to the same worker, in order, and run as tasks of
// one asyncio loop: what a hook leaves in a module's globals is there for the
// next. A call's time runs from its own beginning, which the worker tells. Over
// its limit it is answered with a timeout at once and then cancelled. How long a
// call took the worker measures and tells with the answer, since the host may
// come late to read that it began.
//
// A worker that no longer answers is killed with its process group and the warm
// spare, which has the agent's modules imported already, takes its place: calls
// that had not begun are asked again there, hooks that had begun have failed, and
// tools that had begun have the outcome [Unknown], since nobody can tell what
// they did. Such a call is never made twice.
//
// Who blocks a worker is not guessed: before each step of a call the worker puts
// the call's id into a page of memory that the host can read (see page.go). So a
// tool that legitimately keeps the interpreter busy within its limit is waited
// for, while a hook that does so beyond its own is ended, whatever else is in
// flight.
//
// # Where the code runs
//
// A worker's working folder is the agent's. Its environment is the host's without
// Belay's own variables (BELAY_…), which may hold secrets; PYTHONPATH is left as
// it is, but the package belay that this program carries is found first. Standard
// input is empty. What is printed or logged goes to the host's log line by line:
// a line is cut at 4 KiB, and of more than 100 lines a second the rest is counted
// and not logged. Python's logging works as in any program: warnings and worse
// are shown unless the agent sets it up otherwise.
//
// # Frames
//
// Host and worker talk through two pipes, never through the standard streams:
// the worker reads descriptor 3 and writes descriptor 4. Descriptor 5 is the
// lifeline, a pipe on which nothing is ever written: when it closes, the host is
// gone and the worker ends with all its children. Descriptor 6 is the page.
// What hooks print goes through one more pipe to the log.
//
//	frame = u32 length of the rest | u8 type | u32 call id | body   (big-endian)
//
// From the host:
//
//	L  load      JSON {root, skip, declared}: import the agent; skip names files to leave out,
//	             declared is {project: [name], skills: {id: [name]}}
//	H  ask hook  u16 handle | u8 fields | per field: u32 length, 0xFFFFFFFF when missing | JSON
//	T  run tool  u16 handle | JSON {tool, arguments, sender_id, turn_id, channel, call, memory, events}
//	             memory is {values: {full name: value or null}, skill, closed: [full name]},
//	             events [{event: "user" or "bot", text, metadata, timestamp}]
//	C  cancel    the call with that id
//	P  ping      answered by b from the event loop itself
//	Q  quit      end when the calls under way have ended
//
// From the worker:
//
//	I  importing a module: its path relative to the agent's folder
//	R  ready     JSON {python, executable, pydantic, hooks, tools, findings}
//	X  cannot    JSON {problem, python, detail, managed}: this interpreter cannot run hooks
//	B  begun     the call takes its first step now
//	b  beat      the event loop lives
//	s  said      a text that the tool with that call id sends to the user
//	w  wrote     JSON {name, value}: a memory value that the tool has set
//	A  answer    of a hook: u32 microseconds that it ran | u8 outcome | body
//	             1 go on: u8 changes | per change: u8 field, u32 length, JSON
//	             0 reject, 2 retry, 4 failed: JSON {text, kind, type, file, line, traceback}
//	t  answer    of a tool: u32 microseconds that it ran | JSON {outcome, value, text, reads, type, file, line, traceback, message}
//
// A frame to the worker has at most 32 MiB, one from it at most 17 MiB. The
// worker itself refuses a hook's or tool's answer of more than 16 MiB as a wrong
// return; a longer frame, or anything that is no frame, means that somebody else
// wrote to the pipe, and ends the worker.
package pyhost
