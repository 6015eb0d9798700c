package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/station"
	"github.com/belay-run/belay/internal/vault"
)

func newBackup() *cobra.Command {
	var f jobFlags
	var verify, asJSON bool
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy a data folder to a file while it is in use, or look through such a copy",
		Long: `The copy is of one moment: the database with all tenants' jobs, approvals, policies,
tokens and audit records, the settings, and the snapshots of plugins. It is a tar
file, and unpacked it is a data folder again.

The master key is not in it, and without it nobody can read the copy: keep both, at
two places. --verify unpacks a copy aside and looks through all of it.`,
		Example: `  belay backup /backups/belay-$(date +%F).tar
  belay backup --verify /backups/belay-2026-11-30.tar`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name the file, such as: belay backup /backups/belay.tar")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if verify {
				return verifyBackup(c, f.keyAt(), args[0], asJSON)
			}
			path, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				made, err := d.Backup(ctx, path)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(c.OutOrStdout(), made)
				}
				fmt.Fprintf(c.OutOrStdout(), "%s has the data folder as it was at %s: %s, %s\n", args[0], when(made.Made), size(made.Bytes), several(len(made.Plugins), "snapshot of a plugin", "snapshots of plugins"))
				fmt.Fprintf(c.OutOrStdout(), "The master key is not in it: keep %s elsewhere. It is the one of %s.\n", cmp.Or(f.keyAt(), "the master key"), made.Key)
				return nil
			})
		},
	}
	f.add(c)
	c.Flags().BoolVar(&verify, "verify", false, "look through a copy instead of making one")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// keyAt is where the master key is; "" when there is none.
func (f *jobFlags) keyAt() string {
	path := cmp.Or(f.keyFile, os.Getenv("BELAY_KEY_FILE"))
	if path != "" {
		return path
	}
	path = filepath.Join(f.folder(), vault.KeyFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return path
}

func verifyBackup(c *cobra.Command, keyFile, file string, asJSON bool) error {
	v, err := station.VerifyBackup(c.Context(), file, keyFile)
	if err != nil {
		return err
	}
	w := c.OutOrStdout()
	if asJSON {
		if err := printJSON(w, v); err != nil {
			return err
		}
	} else {
		printVerified(w, v)
	}
	if len(v.Wrong) > 0 {
		return fmt.Errorf("%s cannot be relied on; make another", file)
	}
	return nil
}

func printVerified(w io.Writer, v station.Verified) {
	fmt.Fprintf(w, "made %s by belay %s: %s, %s\n", when(v.Made), v.Version, size(v.Bytes), several(len(v.Plugins), "snapshot of a plugin", "snapshots of plugins"))
	for _, r := range v.Audit {
		if r.OK {
			fmt.Fprintf(w, "audit record of tenant %s: all %d entries are as they were written; head %s\n", r.Tenant, r.Entries, r.Head)
		}
	}
	for _, wrong := range v.Wrong {
		fmt.Fprintf(w, "wrong: %s\n", plain(wrong))
	}
	if len(v.Wrong) == 0 {
		fmt.Fprintln(w, "the file is whole")
	}
	switch {
	case v.KeyFits:
		fmt.Fprintf(w, "the master key in %s opens it\n", v.KeyFile)
	case v.KeyFile != "":
		fmt.Fprintf(w, "the master key in %s does not open it: it needs the one of %s\n", v.KeyFile, v.Key)
	default:
		fmt.Fprintf(w, "it needs the master key of %s; name its file with --key-file to try it\n", v.Key)
	}
}

func size(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", (n+1023)>>10)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

func several(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
