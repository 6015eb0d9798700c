package pyhost

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const wantPython = "3.11"

// findPython returns the interpreter to use.
func findPython(cfg Config) (string, error) {
	if cfg.Python != "" {
		return lookPython(cfg.Python, "install it, or name another one")
	}
	own := filepath.Join(cfg.Dir, ".venv", "bin", "python")
	if _, err := os.Lstat(own); err == nil {
		if _, err := os.Stat(own); err != nil {
			return "", fmt.Errorf("%s leads nowhere: make it anew with \"python3 -m venv --clear %s\"", own, filepath.Dir(filepath.Dir(own)))
		}
		return own, nil
	}
	if env := os.Getenv("BELAY_PYTHON"); env != "" {
		return lookPython(env, "BELAY_PYTHON names it: set it to an interpreter that is there")
	}
	return lookPython("python3", fmt.Sprintf("install Python %s or newer, or set BELAY_PYTHON to an interpreter", wantPython))
}

func lookPython(name, hint string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("there is no Python interpreter %q: %s", name, hint)
	}
	return filepath.Abs(path)
}

func (h *Host) interpreter() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.python
}

func (h *Host) cannotStart(err error) error {
	return fmt.Errorf("%s cannot be started (%w): set BELAY_PYTHON to Python %s or newer", h.interpreter(), err, wantPython)
}

// cannotRun turns what the interpreter says about itself into a line that says
// what to do.
func (h *Host) cannotRun(body []byte) error {
	var c struct {
		Problem string `json:"problem"`
		Python  string `json:"python"`
		Detail  string `json:"detail"`
		Managed bool   `json:"managed"` // pip refuses to install into it
	}
	if err := json.Unmarshal(body, &c); err != nil {
		return fmt.Errorf("%s cannot run hooks, and does not say why", h.interpreter())
	}
	python := h.interpreter()
	switch c.Problem {
	case "version":
		return fmt.Errorf("%s is Python %s, but hooks need %s or newer: make a newer one the agent's own with \"python%s -m venv --clear %s\", or set BELAY_PYTHON",
			python, c.Python, wantPython, wantPython, filepath.Join(h.cfg.Dir, ".venv"))
	case "pydantic":
		if c.Managed {
			venv := filepath.Join(h.cfg.Dir, ".venv")
			return fmt.Errorf("%s has %s: give the agent an interpreter of its own with \"%s -m venv %s && %s/bin/python -m pip install 'pydantic>=2,<3'\"",
				python, c.Detail, python, venv, venv)
		}
		return fmt.Errorf("%s has %s: run \"%s -m pip install 'pydantic>=2,<3'\"", python, c.Detail, python)
	}
	return fmt.Errorf("%s cannot run hooks: %s", python, c.Detail)
}
