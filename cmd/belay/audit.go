package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/audit"
)

func newAudit() *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "Read and check the record of who changed what",
		Long: `The record is append-only, and each entry has the hash of the one before. Keep what
belay audit head prints somewhere else now and then: belay audit verify --head finds
that newer entries were cut off or all were written anew.`,
		Example: `  belay audit tail -n 20
  belay audit head > /elsewhere/head
  belay audit verify --head "$(cat /elsewhere/head)"`,
		Args: noSuchCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(auditTail(), auditVerify(), auditHead())
	return c
}

const auditPage = 1000 // entries that a server gives at a time

func auditTail() *cobra.Command {
	var f jobFlags
	var n int
	var asJSON bool
	c := &cobra.Command{
		Use:   "tail",
		Short: "Print the newest entries, the newest last",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if n < 1 {
				return errors.New("-n is how many entries to print, at least 1")
			}
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				all, err := newest(ctx, d, int64(n))
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(c.OutOrStdout(), all)
				}
				for _, e := range all {
					printEntry(c.OutOrStdout(), e)
				}
				return nil
			})
		},
	}
	f.add(c)
	c.Flags().IntVarP(&n, "number", "n", 10, "how many entries")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// newest reads the newest entries, in order.
func newest(ctx context.Context, d *desk, n int64) ([]audit.Entry, error) {
	first, err := d.Audit(ctx, -1, int(min(n, auditPage)))
	if err != nil || n <= auditPage {
		return first.Entries, err
	}
	var all []audit.Entry
	for after := max(0, first.Head.Seq-n); after < first.Head.Seq; {
		page, err := d.Audit(ctx, after, auditPage)
		if err != nil || len(page.Entries) == 0 {
			return all, err
		}
		all = append(all, page.Entries...)
		after = all[len(all)-1].Seq
	}
	return all, nil
}

func printEntry(w io.Writer, e audit.Entry) {
	data := string(e.Data)
	if data == "{}" {
		data = ""
	}
	fmt.Fprintf(w, "%d  %s  %s  %s  %s  %s\n", e.Seq, e.At.Local().Format(time.DateTime), plain(e.Actor), e.Action, plain(e.Subject), plain(data))
}

func auditVerify() *cobra.Command {
	var f jobFlags
	var head string
	var asJSON bool
	c := &cobra.Command{
		Use:   "verify",
		Short: "Check that no entry was changed, taken out or put in",
		Long:  "Verify exits with 1 when the record is not as it was written, and names the first entry that is not.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				r, err := d.VerifyAudit(ctx, head)
				if err != nil {
					return err
				}
				switch {
				case asJSON:
					if err := printJSON(c.OutOrStdout(), r); err != nil {
						return err
					}
				case r.OK:
					fmt.Fprintf(c.OutOrStdout(), "all %d entries are as they were written; head %s\n", r.Entries, r.Head)
				}
				if r.OK {
					return nil
				}
				return fmt.Errorf("entry %d: %s; the %d before it are as they were written", r.FirstBad, r.Reason, r.Entries)
			})
		},
	}
	f.add(c)
	c.Flags().StringVar(&head, "head", "", "a head that was kept: the record must come by it")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func auditHead() *cobra.Command {
	var f jobFlags
	c := &cobra.Command{
		Use:   "head",
		Short: "Print where the record ends by now, to be kept elsewhere",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				r, err := d.Audit(ctx, -1, 1)
				if err != nil {
					return err
				}
				fmt.Fprintln(c.OutOrStdout(), r.Head)
				return nil
			})
		},
	}
	f.add(c)
	return c
}
