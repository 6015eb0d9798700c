package pyhost

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/hook"
	"github.com/belay-run/belay/hook/hooktest"
)

// The suite that every host passes, over testdata/behaviours.py.
func TestHost(t *testing.T) {
	behaviours, err := os.ReadFile("testdata/behaviours.py")
	if err != nil {
		t.Fatal(err)
	}
	hooktest.Run(t, func(t *testing.T, specs ...hooktest.Spec) []*hook.Hook {
		var text strings.Builder
		text.WriteString("from belay.hooks import *\nimport behaviours\n")
		for i, s := range specs {
			text.WriteString(pythonHook(i, s))
		}
		log := newLogbook()
		h, err := Load(t.Context(), Config{
			Dir:    agent(t, map[string]string{"hooks.py": text.String(), "lib/behaviours.py": string(behaviours)}),
			Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		if err != nil {
			t.Fatalf("load: %v\n%s", err, log)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := h.Close(ctx); err != nil {
				t.Error(err)
			}
			if t.Failed() {
				t.Logf("log:\n%s", log)
			}
		})
		hooks := make([]*hook.Hook, len(specs))
		for _, k := range h.Hooks() {
			var i int
			if _, err := fmt.Sscanf(k.Name, "hooks.py:h%d", &i); err != nil {
				t.Fatalf("a hook is called %q", k.Name)
			}
			hooks[i] = k
		}
		if slices.Contains(hooks, nil) {
			t.Fatalf("hooks are missing: %+v in\n%s", h.Findings(), &text)
		}
		return hooks
	})
}

// pythonHook is the source of a hook that behaves as asked.
func pythonHook(i int, s hooktest.Spec) string {
	prefix, returns, args := "modify", s.Point.Payload, []string{}
	if s.Lane == hook.Observe {
		prefix, returns = "on", "None"
	}
	if s.Final {
		args = append(args, "final=True")
	}
	if s.Limit > 0 {
		args = append(args, fmt.Sprintf("timeout_ms=%d", s.Limit.Milliseconds()))
	}
	return fmt.Sprintf("\n@%s_%s(%s)\nasync def h%d(payload: %s) -> %s:\n    return await behaviours.%s(payload)\n",
		prefix, s.Point.Name, strings.Join(args, ", "), i, s.Point.Payload, returns, s.Behaviour)
}
