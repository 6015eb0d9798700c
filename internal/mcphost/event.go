package mcphost

import "time"

// EventKind names what happened to a server.
type EventKind string

// The events. Of the last two there are no more than the log takes lines.
const (
	Started      EventKind = "server_started"      // it is ready; PID, Took
	StartFailed  EventKind = "server_start_failed" // it did not become ready; Why, Failures
	Lost         EventKind = "server_lost"         // it died or was ended; PID, Why, Failures, Calls
	ToolsChanged EventKind = "tools_changed"       // it says that its list of tools is another now
	LateAnswer   EventKind = "late_answer"         // it answered what nobody waits for; the answer was dropped
)

// Event is something that happened to a server.
type Event struct {
	Kind     EventKind
	Server   string
	PID      int           // 0 for a server behind a URL
	Why      string        // in words
	Took     time.Duration // to become ready
	Failures int           // in a row, this one included
	Calls    int           // that were in flight
}
