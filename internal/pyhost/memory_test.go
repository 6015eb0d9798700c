package pyhost

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

// pss is a process's share of memory in KiB.
func pss(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Skip(err)
	}
	var kib int
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				t.Fatal(err)
			}
		}
	}
	return kib
}

// A worker and the spare stand idle beside every agent that is served.
func TestIdleMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	r := newRig(t, notebook)
	r.spareReady()
	r.ask("shout")
	total := 0
	for _, pid := range r.pids() {
		n := pss(t, pid)
		t.Logf("a worker of %d KiB", n)
		total += n
	}
	if total > 110<<10 {
		t.Errorf("two idle workers have %d KiB", total)
	}
}
