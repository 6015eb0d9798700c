package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/internal/secret"
)

// place is where a secret stands in a file.
type place struct {
	Line   int         `json:"line"`
	Column int         `json:"column"` // in bytes, from 1
	Start  int         `json:"start"`  // in bytes of the file, from 0
	End    int         `json:"end"`
	Name   string      `json:"name"`
	Form   secret.Form `json:"form"`
}

func secretScan() *cobra.Command {
	var f jobFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "scan FILE|-",
		Short: "Find the tenant's secrets in a file or in standard input",
		Long: `Secrets are found as they are, in base64, in hex, percent-encoded, escaped for JSON
and with other line breaks, in texts and in any other bytes. They are printed as they
are found; a file may have any length. The status is 1 when there are any.`,
		Example: "  belay secret scan build.log\n  git diff | belay secret scan -",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			in := c.InOrStdin()
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer file.Close() //nolint:errcheck // nothing was written
				in = file
			}
			tell, end := asLines(c.OutOrStdout(), args[0])
			if asJSON {
				tell, end = asList(c.OutOrStdout())
			}
			scanner, err := f.scanner(c.Context())
			if err != nil {
				return err
			}
			found, err := scan(c.Context(), scanner, in, tell)
			if err = errors.Join(err, end()); err == nil && found > 0 {
				err = errSilent
			}
			return err
		},
	}
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// asLines prints places for a person.
func asLines(w io.Writer, file string) (tell func(place) error, end func() error) {
	return func(p place) error {
		_, err := fmt.Fprintf(w, "%s:%d:%d: secret %s (%s)\n", file, p.Line, p.Column, p.Name, p.Form)
		return err
	}, func() error { return nil }
}

// asList prints places one by one as a JSON list, which is whole once end was called.
func asList(w io.Writer) (tell func(place) error, end func() error) {
	before := "["
	return func(p place) error {
			raw, err := json.MarshalIndent(p, "  ", "  ")
			if err == nil {
				_, err = fmt.Fprintf(w, "%s\n  %s", before, raw)
			}
			before = ","
			return err
		}, func() error {
			last := "\n]\n"
			if before == "[" {
				last = "[]\n"
			}
			_, err := io.WriteString(w, last)
			return err
		}
}

// scanner is what finds the tenant's secrets; nil when there are none.
func (f *jobFlags) scanner(ctx context.Context) (_ *secret.Scanner, err error) {
	store, err := f.lookIn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	key, entries, err := store.SecretEntries(ctx, f.tenant)
	return secret.NewScanner(key, entries), err
}

// scan tells of the secrets in what is read, in the order of where they begin, and how
// many there are. On an error it has told of those before it.
func scan(ctx context.Context, scanner *secret.Scanner, in io.Reader, tell func(place) error) (found int, err error) {
	s := &scanned{ctx: ctx, starts: []int{0}, tell: tell}
	s.stream = scanner.Stream(func(h secret.Hit) {
		s.held = append(s.held, place{Start: h.Start, End: h.End, Name: h.Name, Form: h.Form})
	})
	_, err = io.CopyBuffer(s, struct{ io.Reader }{in}, make([]byte, 256<<10))
	err = errors.Join(err, s.stream.Close())
	return s.told, errors.Join(err, s.release(s.seen))
}

// scanned is a text of any length that is scanned while it is written. It holds what
// was found until nothing can be found before it any more.
type scanned struct {
	ctx    context.Context
	stream *secret.Stream
	tell   func(place) error
	told   int

	seen   int     // bytes
	line   int     // how many lines are before those of starts
	starts []int   // where the lines begin in which something may still be found
	held   []place // without lines
}

// Write implements [io.Writer].
func (s *scanned) Write(b []byte) (int, error) {
	_, _ = s.stream.Write(b) // it never fails
	for at := 0; ; {
		n := bytes.IndexByte(b[at:], '\n')
		if n < 0 {
			break
		}
		at += n + 1
		s.starts = append(s.starts, s.seen+at)
	}
	s.seen += len(b)
	return len(b), errors.Join(s.ctx.Err(), s.release(s.stream.Clear()))
}

// release tells of what begins before a place and forgets the lines before it.
func (s *scanned) release(before int) error {
	slices.SortStableFunc(s.held, func(a, b place) int { return cmp.Compare(a.Start, b.Start) })
	n := 0
	for ; n < len(s.held) && s.held[n].Start < before; n++ {
		p := s.held[n]
		at := s.lineOf(p.Start)
		p.Line, p.Column = s.line+at+1, p.Start-s.starts[at]+1
		if err := s.tell(p); err != nil {
			return err
		}
		s.told++
	}
	s.held = slices.Delete(s.held, 0, n)
	gone := s.lineOf(before)
	s.starts = slices.Delete(s.starts, 0, gone)
	s.line += gone
	return nil
}

// lineOf is the last of the lines that begin at a place or before it.
func (s *scanned) lineOf(at int) int {
	i, exact := slices.BinarySearch(s.starts, at)
	if !exact {
		i--
	}
	return max(i, 0)
}
