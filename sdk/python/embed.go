// Package sdk holds the source of the Python package belay, so that the binary
// carries it: a host writes the files to a folder of its own and puts that folder
// on the interpreter's path.
//
//	if err := os.CopyFS(dir, sdk.FS); err != nil { … }
//	cmd := exec.Command(python, "-m", "belay.worker")
//	cmd.Env = append(os.Environ(), "PYTHONPATH="+dir)
//
// The agent's own interpreter runs it; all that it must have installed is pydantic 2.
package sdk

import "embed"

// FS holds the package as the folder belay: its modules and nothing else, no
// tests and no compiled files.
//
//go:embed belay/*.py belay/py.typed belay/worker/*.py
var FS embed.FS
