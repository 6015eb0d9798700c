package localjob_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belay-run/belay/internal/job/jobtest"
	"github.com/belay-run/belay/internal/localjob"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("LOCALJOB_CHILD"); dir != "" {
		if err := runTours(dir); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func start(h jobtest.Host) (jobtest.Engine, error) {
	return localjob.Start(localjob.Options{
		Journal: h.Journal, Flows: h.Flows, Handlers: h.Handlers, Owner: h.Owner,
		Logger: h.Log, Jitter: h.Jitter, Lease: 30 * time.Second,
	})
}

func TestSimulation(t *testing.T) { jobtest.Simulate(t, 2000/slower, start) }
