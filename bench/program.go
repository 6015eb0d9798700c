package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// program measures the program from outside: start to first answer, and the
// memory of an idle service with its workers.
func program(ctx context.Context, binary string) ([]figure, error) {
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("the program is not built: %w; run make build", err)
	}
	data, err := os.MkdirTemp("", "belay-bench-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(data)
	agent := filepath.Join("examples", "minimal")
	start, err := median(5, func() error {
		c := exec.CommandContext(ctx, binary, "chat", agent, "--data", filepath.Join(data, "chat"))
		c.Stdin = strings.NewReader("hello\n")
		out, err := c.CombinedOutput()
		if err != nil {
			return fmt.Errorf("belay chat: %w\n%s", err, out)
		}
		if !bytes.Contains(out, []byte("agent>")) {
			return fmt.Errorf("belay chat did not answer:\n%s", out)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	memory, err := idle(ctx, binary, agent, filepath.Join(data, "serve"))
	if err != nil {
		return nil, err
	}
	return []figure{
		{"belay chat, start to first answer and end, warm, p50", in(start, time.Second), 1.5, "s", ""},
		{"belay serve, idle with one agent, all processes", memory, 180, "MB", ""},
	}, nil
}

// idle is the proportional memory of an idle service and its workers, in MB.
func idle(ctx context.Context, binary, agent, data string) (float64, error) {
	c := exec.CommandContext(ctx, binary, "serve", agent, "--port", "0", "--data", data, "--log-level", "error")
	out, err := c.StdoutPipe()
	if err != nil {
		return 0, err
	}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = c.Process.Signal(os.Interrupt) // it ends by itself when the program here ends
		_ = c.Wait()
	}()
	ready := bufio.NewScanner(out)
	if !ready.Scan() {
		return 0, fmt.Errorf("belay serve did not start")
	}
	time.Sleep(3 * time.Second) // the spare worker comes after the service is ready
	total := 0.0
	for _, pid := range append(children(c.Process.Pid), c.Process.Pid) {
		total += resident(pid)
	}
	return total, nil
}

// children returns the processes under pid.
func children(pid int) []int {
	var out []int
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil
	}
	for _, t := range tasks {
		b, err := os.ReadFile(t)
		if err != nil {
			continue
		}
		for word := range strings.FieldsSeq(string(b)) {
			if child, err := strconv.Atoi(word); err == nil {
				out = append(out, child)
				out = append(out, children(child)...)
			}
		}
	}
	return out
}

// resident is a process's share of memory in MB, shared pages divided among
// their users.
func resident(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err == nil {
				return kb / 1024
			}
		}
	}
	return 0
}
