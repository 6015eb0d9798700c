package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/server"
	"github.com/belay-run/belay/internal/turn"
)

func newChat() *cobra.Command {
	var f flags
	var trace bool
	var conversation string
	c := &cobra.Command{
		Use:   "chat DIR",
		Short: "Talk to an agent in the terminal",
		Long: `Chat reads a message a line, from a person or from a pipe. When a file of the
agent has changed, the agent is loaded again before the next message. What hooks
and tools print is shown. With --trace each turn says which hooks were asked and
what each did.`,
		Example: `  belay chat my-agent --trace
  belay chat my-agent --conversation ada < questions.txt`,
		Args: oneDir,
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := f.config(args[0], slog.LevelWarn, c.ErrOrStderr())
			if err != nil {
				return err
			}
			cfg.Logger = slog.New(&printed{Handler: cfg.Logger.Handler(), to: c.ErrOrStderr()})
			if err := server.CheckID(conversation); conversation != "" && err != nil {
				return fmt.Errorf("--conversation: %w", err)
			}
			t := &terminal{in: c.InOrStdin(), out: c.OutOrStdout(), errs: c.ErrOrStderr(), trace: trace, sender: conversation}
			t.typed = t.in == os.Stdin && isatty.IsTerminal(os.Stdin.Fd())
			return t.run(c.Context(), cfg)
		},
	}
	f.addPython(c)
	f.addModel(c)
	f.addData(c)
	c.Flags().BoolVar(&trace, "trace", false, "show which hooks were asked and what each did")
	c.Flags().StringVar(&conversation, "conversation", "", "id of the conversation to go on with (default: a new one)")
	return c
}

// terminal is a conversation at the terminal.
type terminal struct {
	in     io.Reader
	out    io.Writer
	errs   io.Writer
	trace  bool
	typed  bool // a person types
	sender string
	open   bool // a text is being written piece by piece
}

var (
	faint = lipgloss.NewStyle().Faint(true)
	bold  = lipgloss.NewStyle().Bold(true)
)

func (t *terminal) run(ctx context.Context, cfg app.Config) (err error) {
	files := app.NewFiles(cfg.Dir) // before they are read: a change while they are is one too
	a, err := app.Open(ctx, cfg)
	if err != nil {
		return explain(t.errs, err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, a.Close(end))
	}()
	if t.sender == "" {
		t.sender = "chat-" + time.Now().Format("20060102-150405.000")
	}
	t.greet(a.Health(ctx))
	lines, broken := t.lines(ctx)
	stale := false // the agent that runs is not the one in the folder
	for {
		if t.typed {
			t.say("%s ", bold.Render("you>"))
		}
		var line string
		ok := false
		select {
		case line, ok = <-lines:
		case <-ctx.Done(): // the input may never give another line
		}
		if !ok {
			if t.typed {
				t.say("\n")
			}
			select {
			case err := <-broken:
				return err
			default:
				return nil
			}
		}
		if line == "" {
			if t.typed {
				return nil
			}
			continue
		}
		if !t.typed {
			t.say("%s %s\n", bold.Render("you>"), line)
		}
		if stale = files.Changed() || stale; stale {
			if stale = !t.reload(ctx, a); stale {
				continue
			}
		}
		ended, err := t.turn(ctx, a, line)
		if err != nil {
			return err
		}
		if ended {
			t.say("%s\n", faint.Render("the conversation is over"))
			return nil
		}
	}
}

func (t *terminal) greet(h server.Health) {
	model := "model " + h.Model
	if h.Scripted {
		model = "answers from a script, not a model"
	}
	ends := ""
	if t.typed {
		ends = " · an empty line or Ctrl-D ends"
	}
	t.say("%s\n", faint.Render(fmt.Sprintf("%s · %s · conversation %s%s", h.Agent, model, t.sender, ends)))
}

// reload loads the folder again. An agent with findings does not serve: the
// message is not sent until they are mended.
func (t *terminal) reload(ctx context.Context, a *app.App) bool {
	if err := a.Reload(ctx); err != nil {
		fmt.Fprintln(t.errs, "belay:", explain(t.errs, err))
		t.say("%s\n", faint.Render("the agent's files changed and cannot be loaded; your message was not sent"))
		return false
	}
	t.say("%s\n", faint.Render("the agent's files changed and were loaded again"))
	return true
}

func (t *terminal) turn(ctx context.Context, a *app.App, line string) (ended bool, err error) {
	report, err := a.Talk(ctx, server.Inbound{Sender: t.sender, Live: true, Message: turn.Message{Text: line,
		Channel: rawjson.Must(map[string]any{"name": "chat", "metadata": map[string]any{}})}}, t)
	t.endLine()
	if err != nil {
		return false, err
	}
	if report.Status == turn.Cancelled {
		t.say("%s\n", faint.Render("cancelled"))
	}
	settle(a)
	if t.trace {
		for line := range strings.Lines(a.TraceText(report)) {
			t.say("%s\n", faint.Render(plain(strings.TrimSuffix(line, "\n"))))
		}
	}
	return report.Ended, nil
}

// settle waits a moment for the observers, so that what they print stands before
// the next prompt.
func settle(a *app.App) {
	done := make(chan struct{})
	go func() { a.WaitObservers(); close(done) }()
	select {
	case <-done:
	case <-time.After(300 * time.Millisecond):
	}
}

// Delta writes a piece of a text as it arrives.
func (t *terminal) Delta(piece string) {
	if !t.open {
		t.say("%s ", bold.Render("agent>"))
		t.open = true
	}
	t.say("%s", plain(piece))
}

// Text writes a whole text.
func (t *terminal) Text(u turn.Utterance) {
	if u.Streamed {
		t.endLine()
		return
	}
	t.endLine()
	t.say("%s %s\n", bold.Render("agent>"), plain(u.Text))
}

func (t *terminal) endLine() {
	if t.open {
		t.say("\n")
		t.open = false
	}
}

func (t *terminal) say(format string, args ...any) { fmt.Fprintf(t.out, format, args...) }

// longest is how long a message at the terminal may be.
const longest = 1 << 20

// lines reads the input a line at a time, so that Ctrl-C ends a wait for it. broken
// has the error when the input broke off.
func (t *terminal) lines(ctx context.Context) (lines <-chan string, broken <-chan error) {
	out, failed := make(chan string), make(chan error, 1)
	go func() {
		defer close(out)
		in := bufio.NewScanner(t.in)
		in.Buffer(nil, longest)
		for in.Scan() {
			select {
			case out <- strings.TrimSpace(in.Text()):
			case <-ctx.Done():
				return
			}
		}
		switch err := in.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			failed <- fmt.Errorf("a line of the input is longer than %d bytes; a message is one line", longest)
		case err != nil:
			failed <- fmt.Errorf("read the input: %w", err)
		}
	}()
	return out, failed
}
