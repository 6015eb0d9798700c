package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/conversation"
	"github.com/belay-run/belay/internal/sqlstore"
)

func newConversation() *cobra.Command {
	c := &cobra.Command{
		Use:   "conversation",
		Short: "List, show, export and delete the conversations of an agent",
		Long: `Conversation reads the records of an agent, with the key that they are encrypted
under. list, show and export may run beside a service on the folder; delete may
not: a service deletes by DELETE /conversations/{id}.`,
		Example: `  belay conversation list my-agent
  belay conversation show my-agent ada --trace
  belay conversation export my-agent ada --format jsonl > ada.jsonl
  belay conversation delete my-agent ada`,
		Args: noSuchCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newConversationList(), newConversationShow(), newConversationExport(), newConversationDelete())
	return c
}

// archive opens the records of an agent.
func (f *flags) archive(c *cobra.Command, dir string) (*app.Archive, error) {
	cfg, err := f.config(dir, slog.LevelWarn, c.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	a, err := app.OpenArchive(cfg)
	if err != nil {
		return nil, explain(c.ErrOrStderr(), err)
	}
	return a, nil
}

// dirAndID wants the agent's folder and a conversation.
func dirAndID(c *cobra.Command, args []string) error {
	if len(args) == 2 {
		return nil
	}
	return fmt.Errorf("name the agent's folder and one conversation, such as: %s my-agent ada", c.CommandPath())
}

func unknown(sender, dir string) error {
	return fmt.Errorf("there is no conversation %q; belay conversation list %s lists those that there are", sender, dir)
}

// listed is a line of belay conversation list --json.
type listed struct {
	ID     string    `json:"id"`
	Turns  int64     `json:"turns"`
	Events int64     `json:"events"`
	First  time.Time `json:"first"` // when it began
	Last   time.Time `json:"last"`  // when its newest event was added
}

func newConversationList() *cobra.Command {
	var f flags
	var asJSON bool
	c := &cobra.Command{
		Use:     "list DIR",
		Short:   "List the conversations of an agent, the newest first",
		Long:    "List needs no key: who spoke and when is not encrypted.",
		Example: "  belay conversation list my-agent --json",
		Args:    oneDir,
		RunE: func(c *cobra.Command, args []string) error {
			a, err := f.archive(c, args[0])
			if err != nil {
				return err
			}
			all, err := a.List(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				out := make([]listed, len(all))
				for i, s := range all {
					out[i] = listed{s.ID.Sender, s.Turns, s.Events, s.Created, s.Updated}
				}
				return indented(c.OutOrStdout(), out)
			}
			if len(all) == 0 {
				fmt.Fprintln(c.OutOrStdout(), "no conversation is kept")
				return nil
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tTURNS\tEVENTS\tFIRST\tLAST")
			for _, s := range all {
				fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\n", plain(s.ID.Sender), s.Turns, s.Events, when(s.Created), when(s.Updated))
			}
			return w.Flush()
		},
	}
	f.addData(c)
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

func newConversationShow() *cobra.Command {
	var f flags
	var trace bool
	c := &cobra.Command{
		Use:   "show DIR ID",
		Short: "Show what was said and done in a conversation",
		Long: `Show writes a conversation for a person to read: who said what, which tools ran,
and which texts hooks stopped. With --trace each turn says which hooks were asked
and what each did. The tenant's secrets are shown by their names.`,
		Example: "  belay conversation show my-agent ada --trace",
		Args:    dirAndID,
		RunE: func(c *cobra.Command, args []string) error {
			a, err := f.archive(c, args[0])
			if err != nil {
				return err
			}
			events, traces, err := a.Read(c.Context(), args[1])
			if err != nil {
				return err
			}
			if len(events)+len(traces) == 0 {
				return unknown(args[1], args[0])
			}
			if !trace {
				traces = nil
			}
			text, err := app.Transcript(events, traces)
			if err == nil {
				text, err = a.Mask(c.Context(), text)
			}
			if err != nil {
				return err
			}
			id := a.ID(args[1])
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s · conversation %s\n%s", id.Agent, plain(id.Sender), plain(text))
			return err
		},
	}
	f.addData(c)
	c.Flags().BoolVar(&trace, "trace", false, "show which hooks were asked and what each did")
	return c
}

func newConversationExport() *cobra.Command {
	var f flags
	var format string
	c := &cobra.Command{
		Use:   "export DIR ID",
		Short: "Write a conversation as JSON",
		Long: `Export writes a conversation in the form of GET /conversations/{id}/tracker: with
--format json as one object, with jsonl an event a line.`,
		Example: "  belay conversation export my-agent ada > ada.json",
		Args:    dirAndID,
		RunE: func(c *cobra.Command, args []string) error {
			write, ok := map[string]func(io.Writer, string, []conversation.Exported) error{"json": oneObject, "jsonl": eventALine}[format]
			if !ok {
				return fmt.Errorf("--format %q: use json or jsonl", format)
			}
			a, err := f.archive(c, args[0])
			if err != nil {
				return err
			}
			events, _, err := a.Read(c.Context(), args[1])
			if err != nil {
				return err
			}
			if len(events) == 0 {
				return unknown(args[1], args[0])
			}
			return write(c.OutOrStdout(), args[1], conversation.Export(events))
		},
	}
	f.addData(c)
	c.Flags().StringVar(&format, "format", "json", "json or jsonl")
	return c
}

func oneObject(w io.Writer, sender string, events []conversation.Exported) error {
	return indented(w, struct {
		Sender string                  `json:"sender_id"`
		Events []conversation.Exported `json:"events"`
	}{sender, events})
}

func eventALine(w io.Writer, _ string, events []conversation.Exported) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, e := range events {
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	return nil
}

func indented(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func newConversationDelete() *cobra.Command {
	var f flags
	var yes bool
	c := &cobra.Command{
		Use:   "delete DIR ID",
		Short: "Delete a conversation for good",
		Long: `Delete drops the key of a conversation, its events and its trace: nobody can read
it again, except in copies of the data folder made before. At a terminal it asks
first. No service may run on the folder; one that does deletes by
DELETE /conversations/{id}.`,
		Example: "  belay conversation delete my-agent ada --yes",
		Args:    dirAndID,
		RunE: func(c *cobra.Command, args []string) error {
			a, err := f.archive(c, args[0])
			if err != nil {
				return err
			}
			last, err := a.Updated(c.Context(), args[1])
			if err != nil {
				return err
			}
			if last.IsZero() {
				return unknown(args[1], args[0])
			}
			if !yes {
				if err := agreed(c, args[1], last); err != nil {
					return err
				}
			}
			there, err := a.Delete(c.Context(), args[1])
			var used *sqlstore.InUseError
			switch {
			case errors.As(err, &used):
				return inUse(used, args[1])
			case err != nil:
				return err
			case !there:
				return unknown(args[1], args[0])
			}
			fmt.Fprintf(c.OutOrStdout(), "conversation %s is deleted\n", plain(args[1]))
			return nil
		},
	}
	f.addData(c)
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

// agreed asks the person at the terminal.
func agreed(c *cobra.Command, sender string, last time.Time) error {
	if c.InOrStdin() != io.Reader(os.Stdin) || !isatty.IsTerminal(os.Stdin.Fd()) {
		return fmt.Errorf("nobody is here to ask whether conversation %q is to be deleted for good: say --yes", sender)
	}
	fmt.Fprintf(c.OutOrStdout(), "Delete conversation %s, last used %s? It cannot be brought back. [y/N] ", plain(sender), when(last))
	in := bufio.NewScanner(c.InOrStdin())
	in.Scan()
	if err := in.Err(); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(in.Text())) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was deleted")
}

// inUse says how to delete a conversation that a running process may have in
// memory.
func inUse(e *sqlstore.InUseError, sender string) error {
	path := strings.ReplaceAll(url.PathEscape(sender), "'", "%27")
	return fmt.Errorf("%s runs on %s, and only it may delete there: ask a service with "+
		"curl -X DELETE 'http://127.0.0.1:5005/conversations/%s' (at its address, with its token), or end it and try again", e.Owner, e.Dir, path)
}
