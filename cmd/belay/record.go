package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/agent"
	"github.com/belay-run/belay/internal/convtest"
)

// recordFlags are those of belay record.
type recordFlags struct {
	flags
	dir   string
	from  string
	out   string
	name  string
	force bool
}

func newRecord() *cobra.Command {
	var f recordFlags
	c := &cobra.Command{
		Use:   "record CONVERSATION --agent DIR",
		Short: "Make a test of a kept conversation",
		Long: `Record writes a conversation as a test for belay test: what the user said, what
the model decided, and what came of it. The test passes as long as nothing has
changed. What a recording cannot hold stands in comments, and is said.

The test has what the user and the model said. Look at it before you share it.`,
		Example: `  belay record ada --agent my-agent -o my-agent/tests/ada.yml
  belay record --from ada.json --agent my-agent -o my-agent/tests/ada.yml`,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return fmt.Errorf("%s takes one conversation; %q is one too many", c.CommandPath(), args[1])
			case len(args) == 0 && f.from == "":
				return fmt.Errorf("name a conversation, such as: %s ada --agent my-agent; or --from with an export", c.CommandPath())
			case f.dir == "" && f.from == "":
				return errors.New("name the agent's folder with --agent")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.addData(c)
	c.Flags().StringVar(&f.dir, "agent", "", "the agent's folder")
	c.Flags().StringVar(&f.from, "from", "", "read a file of belay conversation export instead of the records")
	c.Flags().StringVarP(&f.out, "output", "o", "", "file to write (default: the terminal)")
	c.Flags().StringVar(&f.name, "name", "", "name of the test (default: the conversation's id)")
	c.Flags().BoolVar(&f.force, "force", false, "write over a file that is there")
	return c
}

func (f *recordFlags) run(c *cobra.Command, args []string) error {
	src, err := f.source(c, args)
	if err != nil {
		return err
	}
	test, notes, err := convtest.Record(src)
	if err != nil {
		return fmt.Errorf("%w; nothing was recorded", err)
	}
	data, err := convtest.Write(test, comment)
	if err != nil {
		return err
	}
	for _, note := range notes {
		fmt.Fprintln(c.ErrOrStderr(), "note:", plain(note))
	}
	if f.out == "" {
		_, err := c.OutOrStdout().Write(data)
		return err
	}
	if err := f.save(data); err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "wrote %d turns to %s; run them with belay test %s %[2]s\n", len(test.Turns), f.out, cmp.Or(f.dir, "DIR"))
	return nil
}

// comment stands on top of a recorded test.
const comment = `Made of a kept conversation by belay record. recording: is what the model decided.
Texts and arguments that hooks changed stand as changed. Results of tools are not
expected here: they may have clocks and new ids in them. docs: testing-agents.md`

func (f *recordFlags) save(data []byte) error {
	if err := os.MkdirAll(filepath.Dir(f.out), 0o755); err != nil {
		return fmt.Errorf("make the folder of %s: %w", f.out, err)
	}
	how := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if f.force {
		how = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	out, err := os.OpenFile(f.out, how, 0o600) // it has what a user said
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already; name another file, or say --force", f.out)
	}
	if err != nil {
		return fmt.Errorf("write the test: %w", err)
	}
	_, err = out.Write(data)
	return errors.Join(err, out.Close())
}

// source reads the conversation from the records, or from a file.
func (f *recordFlags) source(c *cobra.Command, args []string) (src convtest.Source, err error) {
	if len(args) == 1 {
		src.Sender = args[0]
	}
	if f.dir != "" {
		spec, _ := agent.Read(f.dir) // mistakes in it do not matter here
		src.Skills = spec.Skills
	}
	if f.from != "" {
		var sender string
		if sender, src.Events, err = convtest.ReadExport(f.from); err != nil {
			return src, err
		}
		src.Sender = cmp.Or(src.Sender, sender)
		src.Name = cmp.Or(f.name, src.Sender, filepath.Base(f.from))
		return src, nil
	}
	src.Name = cmp.Or(f.name, src.Sender)
	a, err := f.archive(c, f.dir)
	if err != nil {
		return src, err
	}
	if src.Events, src.Traces, err = a.Read(c.Context(), src.Sender); err != nil {
		return src, err
	}
	if len(src.Events) == 0 {
		return src, unknown(src.Sender, f.dir)
	}
	return src, nil
}
