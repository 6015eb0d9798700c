package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/secret"
	"github.com/belay-run/belay/internal/sqlstore"
	"github.com/belay-run/belay/internal/vault"
)

func newSecret() *cobra.Command {
	c := &cobra.Command{
		Use:   "secret",
		Short: "Keep secrets for tools, and find them where they do not belong",
		Long: `A secret is one tenant's. Its value is kept encrypted and leaves only into the
environment of a tool that names it. It is known by fingerprints: hooks with
scan: [secrets] are told where it stands, and what Belay shows and logs has
[secret NAME] in its place.

A value is never an argument: it is asked for, or read from a file or from
standard input. A line break at its end is not part of it.`,
		Example: `  belay secret set CRM_TOKEN
  belay secret set CRM_TOKEN --file token.txt
  belay secret rotate CRM_TOKEN --keep 7d < token.txt
  belay secret scan build.log`,
		Args: noSuchCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(secretSet(), secretRotate(), secretList(), secretRemove(), secretTest(), secretScan())
	return c
}

func oneSecret(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return fmt.Errorf("name the secret, such as: %s CRM_TOKEN", c.CommandPath())
	case len(args) > 1:
		return errors.New("a value is never an argument, where other users of the machine could see it: it is asked for, or comes with --file or on standard input; if that was the value, make another one")
	}
	return nil
}

func secretSet() *cobra.Command {
	var f jobFlags
	var file string
	c := &cobra.Command{
		Use:     "set NAME",
		Short:   "Keep a new secret",
		Example: "  belay secret set CRM_TOKEN --file token.txt",
		Args:    oneSecret,
		RunE: func(c *cobra.Command, args []string) error {
			value, err := readValue(c, file)
			if err != nil {
				return err
			}
			return f.giveSecret(c, control.SecretOrder{Name: args[0], Value: value})
		},
	}
	f.add(c)
	c.Flags().StringVar(&file, "file", "", "read the value from a file (default: ask for it, or read standard input)")
	return c
}

func secretRotate() *cobra.Command {
	var f jobFlags
	var file, keep string
	c := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Give a secret another value",
		Long: `Tools get the new value from their next call on. The value before is still looked
for, until --keep has passed.`,
		Example: "  belay secret rotate CRM_TOKEN --keep 7d",
		Args:    oneSecret,
		RunE: func(c *cobra.Command, args []string) error {
			var kept time.Duration
			if keep != "0" {
				var err error
				if kept, err = readLifetime(keep); err != nil {
					return errors.New("--keep: write days, hours or minutes, such as 30d, 12h or 30m, or 0; 3650d is the most")
				}
			}
			value, err := readValue(c, file)
			if err != nil {
				return err
			}
			return f.giveSecret(c, control.SecretOrder{Name: args[0], Value: value, Rotate: true, Keep: int64(kept / time.Second)})
		},
	}
	f.add(c)
	c.Flags().StringVar(&file, "file", "", "read the value from a file (default: ask for it, or read standard input)")
	c.Flags().StringVar(&keep, "keep", "30d", "how long the value before is still looked for")
	return c
}

func (f *jobFlags) giveSecret(c *cobra.Command, o control.SecretOrder) error {
	return f.with(c, false, func(ctx context.Context, d *desk) error {
		made, err := d.SetSecret(ctx, o)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "%s is set, version %d\n", made.Name, made.Version)
		return nil
	})
}

// readValue gets a secret's value from where it cannot be seen.
func readValue(c *cobra.Command, file string) (string, error) {
	var raw []byte
	var err error
	switch {
	case file != "":
		var f *os.File
		if f, err = os.Open(file); err == nil {
			raw, err = io.ReadAll(io.LimitReader(f, 2*secret.MaxValue))
			err = errors.Join(err, f.Close())
		}
	case c.InOrStdin() == io.Reader(os.Stdin) && isatty.IsTerminal(os.Stdin.Fd()):
		fmt.Fprint(c.ErrOrStderr(), "value (it is not shown): ")
		raw, err = readUnseen(os.Stdin)
		fmt.Fprintln(c.ErrOrStderr())
	default:
		raw, err = io.ReadAll(io.LimitReader(c.InOrStdin(), 2*secret.MaxValue))
	}
	if err != nil {
		return "", fmt.Errorf("read the value: %w", err)
	}
	raw = bytes.TrimSuffix(bytes.TrimSuffix(raw, []byte("\n")), []byte("\r"))
	switch {
	case len(bytes.TrimSpace(raw)) < secret.MinValue:
		return "", secret.ErrShort
	case len(raw) > secret.MaxValue:
		return "", secret.ErrLong
	}
	return string(raw), nil
}

// readLine reads a line byte by byte, so that nothing after it is taken.
func readLine(r io.Reader) ([]byte, error) {
	var line []byte
	for one := make([]byte, 1); len(line) <= secret.MaxValue; {
		n, err := r.Read(one)
		if n == 1 && one[0] == '\n' {
			return line, nil
		}
		line = append(line, one[:n]...)
		if errors.Is(err, io.EOF) {
			return line, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return line, nil
}

func secretList() *cobra.Command {
	var f jobFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List secrets, without their values",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				all, err := d.Secrets(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(c.OutOrStdout(), all)
				}
				if len(all) == 0 {
					fmt.Fprintln(c.ErrOrStderr(), "there are no secrets")
					return nil
				}
				t := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
				fmt.Fprintln(t, "NAME\tVERSION\tSET\tBY\tEARLIER VALUES LOOKED FOR")
				for _, s := range all {
					fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%d\n", s.Name, s.Version, s.Updated.Local().Format(time.DateTime), s.By, s.Earlier)
				}
				return t.Flush()
			})
		},
	}
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func secretRemove() *cobra.Command {
	var f jobFlags
	c := &cobra.Command{
		Use:   "rm NAME",
		Short: "Remove a secret",
		Long:  "It is looked for no more, wherever it may stand: to replace a value, rotate it.",
		Args:  oneSecret,
		RunE: func(c *cobra.Command, args []string) error {
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				if err := d.RemoveSecret(ctx, args[0]); err != nil {
					return err
				}
				fmt.Fprintln(c.OutOrStdout(), args[0]+" is removed")
				return nil
			})
		},
	}
	f.add(c)
	return c
}

// lookIn opens the store beside its owner, to read.
func (f *jobFlags) lookIn(ctx context.Context) (*sqlstore.Store, error) {
	dir, err := filepath.Abs(f.folder())
	if err != nil {
		return nil, err
	}
	if err := sqlstore.Exists(dir); err != nil {
		return nil, err
	}
	keys, err := vault.Open(dir, cmp.Or(f.keyFile, os.Getenv("BELAY_KEY_FILE")))
	if err != nil {
		return nil, err
	}
	return sqlstore.Attach(ctx, dir, sqlstore.Options{Vault: keys, Logger: slog.New(slog.DiscardHandler)})
}

func secretTest() *cobra.Command {
	var f jobFlags
	var file string
	c := &cobra.Command{
		Use:   "test NAME",
		Short: "Say whether a text is the secret's value",
		Long:  "The text is asked for, or read from a file or from standard input. The status is 1 when it is not.",
		Args:  oneSecret,
		RunE: func(c *cobra.Command, args []string) (err error) {
			store, err := f.lookIn(c.Context())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, store.Close()) }()
			if _, _, err := store.SecretValue(c.Context(), f.tenant, args[0]); err != nil {
				return err
			}
			text, err := readValue(c, file)
			if errors.Is(err, secret.ErrShort) || errors.Is(err, secret.ErrLong) {
				text, err = "", nil // then it is no secret's value
			}
			if err != nil {
				return err
			}
			same, err := store.IsSecret(c.Context(), f.tenant, args[0], []byte(text))
			if err != nil {
				return err
			}
			if !same {
				fmt.Fprintln(c.OutOrStdout(), "no, the value is another")
				return errSilent
			}
			fmt.Fprintln(c.OutOrStdout(), "yes, it is the value")
			return nil
		},
	}
	f.add(c)
	c.Flags().StringVar(&file, "file", "", "read the text from a file")
	return c
}
