package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/control"
)

func newToken() *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke the tokens of the HTTP API",
		Long: `A token is one tenant's and has a role: a viewer looks, an approver also starts and
cancels jobs and decides approvals, an admin also changes plugins, policy and
tokens. Only its hash is kept.`,
		Example: `  belay token create ann --role approver --expires 90d
  belay token list
  belay token revoke ann`,
		Args: noSuchCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(tokenCreate(), tokenList(), tokenRevoke())
	return c
}

func oneToken(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name the token after who will use it, such as: %s ann", c.CommandPath())
	}
	return nil
}

func tokenCreate() *cobra.Command {
	var f jobFlags
	var role, expires string
	var asJSON bool
	c := &cobra.Command{
		Use:     "create NAME",
		Short:   "Make a token and print it, this once",
		Long:    "The name stands in the audit record as who did something.",
		Example: "  belay token create ann --role approver --expires 90d",
		Args:    oneToken,
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := access.ParseRole(role); err != nil {
				return errors.New("say with --role what the token may do: viewer, approver or admin")
			}
			lifetime, err := readLifetime(expires)
			if err != nil {
				return err
			}
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				made, err := d.CreateToken(ctx, control.TokenOrder{Name: args[0], Role: role, ExpiresIn: int64(lifetime / time.Second)})
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(c.OutOrStdout(), made)
				}
				fmt.Fprintln(c.OutOrStdout(), made.Secret)
				until := "until it is revoked"
				if !made.Token.Expires.IsZero() {
					until = "until " + when(made.Token.Expires)
				}
				fmt.Fprintf(c.ErrOrStderr(), "This is the token of %s, %s of tenant %s, %s. It is not shown again.\n", made.Token.Name, made.Token.Role, made.Token.Tenant, until)
				return nil
			})
		},
	}
	f.add(c)
	c.Flags().StringVar(&role, "role", "", "viewer, approver or admin")
	c.Flags().StringVar(&expires, "expires", "", "how long it holds, such as 90d or 12h (default: until it is revoked)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

const longestToken = 10 * 365 * 24 * time.Hour

// readLifetime reads a number of days, hours or minutes; 0 for "".
func readLifetime(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	var d time.Duration
	var err error
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		d = time.Duration(min(n, 100_000)) * 24 * time.Hour
	} else {
		d, err = time.ParseDuration(text)
	}
	if err != nil || d < time.Minute || d > longestToken {
		return 0, fmt.Errorf("--expires %q: write days, hours or minutes, such as 90d, 12h or 30m; 3650d is the most", text)
	}
	return d, nil
}

func tokenList() *cobra.Command {
	var f jobFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the tenant's tokens, also those that hold no more",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				all, err := d.Tokens(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(c.OutOrStdout(), all)
				}
				if len(all) == 0 {
					fmt.Fprintln(c.ErrOrStderr(), "the tenant has no token; belay token create makes one")
					return nil
				}
				w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
				fmt.Fprintln(w, "NAME\tROLE\tMADE\tBY\tLAST USED\tSTATE")
				for _, t := range all {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", t.Name, t.Role, when(t.Created), t.By, when(t.LastUsed), stateOf(t, time.Now()))
				}
				return w.Flush()
			})
		},
	}
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func stateOf(t access.Token, now time.Time) string {
	switch {
	case !t.Revoked.IsZero():
		return "revoked " + when(t.Revoked) + " by " + t.RevokedBy
	case t.Expires.IsZero():
		return "holds"
	case now.Before(t.Expires):
		return "holds until " + when(t.Expires)
	}
	return "expired " + when(t.Expires)
}

func tokenRevoke() *cobra.Command {
	var f jobFlags
	c := &cobra.Command{
		Use:   "revoke NAME",
		Short: "End a token: it holds no more from the next request on",
		Args:  oneToken,
		RunE: func(c *cobra.Command, args []string) error {
			return f.with(c, false, func(ctx context.Context, d *desk) error {
				if _, err := d.RevokeToken(ctx, args[0]); err != nil {
					return err
				}
				fmt.Fprintf(c.OutOrStdout(), "the token %s holds no more\n", args[0])
				return nil
			})
		},
	}
	f.add(c)
	return c
}
