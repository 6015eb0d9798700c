package station

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/belay-run/belay/internal/plugin"
)

// What a Python server says at last when it lacks something.
var (
	noModule = regexp.MustCompile(`No module named '?([A-Za-z0-9_.]+)`)
	noName   = regexp.MustCompile(`cannot import name '\w+' from '(\w+)`)
)

// mend says how to mend what keeps a tool's server from starting; "" when it does not
// tell. A Python server runs under an interpreter that its manifest does not name.
func mend(t *plugin.Tool, failed error) string {
	if t == nil || t.Remote() || len(t.Command) == 0 || t.Command[0] != "python" && t.Command[0] != "python3" {
		return ""
	}
	python := interpreter(t.Command[0])
	said := failed.Error()
	if strings.Contains(said, "cannot run ") {
		if named := os.Getenv("BELAY_PYTHON"); named != "" {
			return "BELAY_PYTHON names " + named + ": let it name a Python 3.11 or newer that has what the server imports"
		}
		return "install Python 3.11 or newer, or let BELAY_PYTHON name one; it needs what the server imports, such as the mcp package"
	}
	if m := noName.FindStringSubmatch(said); m != nil {
		return fmt.Sprintf("%[1]s has another version of %[2]s than the server is written for: run %[1]s -m pip install --upgrade %[2]s, or let BELAY_PYTHON name an interpreter that has the right one", python, m[1])
	}
	m := noModule.FindStringSubmatch(said)
	if m == nil {
		return ""
	}
	module, _, _ := strings.Cut(m[1], ".")
	if module == "mcp" {
		return fmt.Sprintf("%[1]s has no mcp, which servers in Python are written with: run %[1]s -m pip install mcp, or let BELAY_PYTHON name an interpreter that has it", python)
	}
	return fmt.Sprintf("%s finds no %s, neither in the plugin's folder and its src nor among what is installed: install it, or let BELAY_PYTHON name an interpreter that has it", python, module)
}
