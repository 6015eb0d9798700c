// Command bench prints the speed figures of Belay beside their budgets. It
// measures the running product: engine, Python workers, whole turns on disk, MCP
// servers, jobs, the program itself. Run it with make bench, on a quiet machine.
//
// A budget that is not met is said; it fails the run only with -strict, since a
// shared machine is noisy.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"time"
)

// figure is one line of the table.
type figure struct {
	what   string
	got    float64
	budget float64
	unit   string
	note   string
}

func main() {
	if len(os.Args) > 1 && parts[os.Args[1]] != nil {
		if err := parts[os.Args[1]](context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	strict := flag.Bool("strict", false, "exit with 1 when a budget is not met")
	binary := flag.String("belay", filepath.Join("bin", "belay"), "the program to measure")
	only := flag.String("only", "", "measure one group: engine, python, turns, mcp, steps, jobs, secrets, models or program")
	streams := flag.Duration("streams", 5*time.Second, "how long the parallel streams of the model gateway run")
	flag.Parse()
	ok, err := run(context.Background(), *binary, *only, *streams)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if !ok && *strict {
		os.Exit(1)
	}
}

func run(ctx context.Context, binary, only string, streams time.Duration) (ok bool, err error) {
	ok = true
	if load := busy(); load > 0 {
		fmt.Printf("The machine is busy (a load of %.1f on %d CPUs): the figures are too high.\n", load, runtime.NumCPU())
	}
	fmt.Printf("%-66s %12s %12s %8s\n", "what", "figure", "budget", "ratio")
	for _, group := range []struct {
		name    string
		measure func(context.Context) ([]figure, error)
	}{
		{"engine", engine}, {"python", python}, {"turns", turns}, {"mcp", mcpCalls}, {"steps", steps}, {"jobs", jobs}, {"secrets", secrets},
		{"models", func(ctx context.Context) ([]figure, error) { return models(ctx, streams) }},
		{"program", func(ctx context.Context) ([]figure, error) { return program(ctx, binary) }},
	} {
		if only != "" && only != group.name {
			continue
		}
		figures, err := group.measure(ctx)
		if err != nil {
			return false, err
		}
		for _, f := range figures {
			mark := ""
			if f.got > f.budget {
				mark, ok = "  over", false
			}
			fmt.Printf("%-66s %9.3g %-2s %9.3g %-2s %7.2f%s%s\n", f.what, f.got, f.unit, f.budget, f.unit, f.got/f.budget, mark, f.note)
		}
	}
	return ok, nil
}

// busy is the load of a machine that does more than it has CPUs for, else 0.
func busy() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0 // not Linux
	}
	var load float64
	if _, err := fmt.Sscan(string(b), &load); err != nil || load <= float64(runtime.NumCPU()) {
		return 0
	}
	return load
}

// median runs f n times after a warm-up of n/10 and returns the median time.
func median(n int, f func() error) (time.Duration, error) {
	times := make([]time.Duration, 0, n)
	for i := range n + n/10 {
		began := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		if i >= n/10 {
			times = append(times, time.Since(began))
		}
	}
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	return times[n/2], nil
}

func in(d time.Duration, unit time.Duration) float64 { return float64(d) / float64(unit) }
