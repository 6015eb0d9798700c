package catalogue

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/belay-run/belay/hook"
)

// python gives the constants of the Python package, in the format of the
// package's formatter.
func python() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n", generated)
	b.WriteString(`"""The table of insertion points around a turn."""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """One field of a payload: name, shape, whether a hook may change it, default as JSON."""

    name: str
    shape: str
    mutable: bool
    default: str
    doc: str


class Point(NamedTuple):
    """One insertion point. signals and on_failure are those of the modify lane."""

    name: str
    alias: str
    payload: str
    alias_payload: str
    observe: bool
    modify: bool
    signals: tuple[str, ...]
    on_failure: str
    observe_limit_ms: int
    modify_limit_ms: int
    fields: tuple[Field, ...]
    doc: str


POINTS: tuple[Point, ...] = (
`)
	for _, p := range turnPoints() {
		pyPoint(&b, p)
	}
	b.WriteString(")\n")
	return b.Bytes()
}

func pyPoint(b *bytes.Buffer, p *hook.Point) {
	b.WriteString("    Point(\n")
	for _, arg := range [][2]string{
		{"name", pyString(p.Name)},
		{"alias", pyString(p.Alias)},
		{"payload", pyString(p.Payload)},
		{"alias_payload", pyString(p.AliasPayload)},
		{"observe", pyBool(p.Observe)},
		{"modify", pyBool(p.Modify)},
		{"signals", pyTuple(Signals(p))},
		{"on_failure", pyString(string(p.OnFailure))},
		{"observe_limit_ms", strconv.FormatInt(p.ObserveLimit.Milliseconds(), 10)},
		{"modify_limit_ms", strconv.FormatInt(p.ModifyLimit.Milliseconds(), 10)},
	} {
		fmt.Fprintf(b, "        %s=%s,\n", arg[0], arg[1])
	}
	b.WriteString("        fields=(\n")
	for _, f := range p.Fields {
		pyField(b, f)
	}
	fmt.Fprintf(b, "        ),\n        doc=%s,\n    ),\n", pyString("Reached "+p.When+"."))
}

// pyWidth is the formatter's line length.
const pyWidth = 100

// pyField writes one call: on one line, with its arguments on one line, or with
// each on its own, whichever fits first.
func pyField(b *bytes.Buffer, f hook.Field) {
	args := []string{pyString(f.Name), pyString(string(f.Shape)), pyBool(!f.ReadOnly), pyString(f.Default), pyString(f.Doc)}
	const indent, inner = "            ", "                "
	flat := strings.Join(args, ", ")
	switch {
	case width(indent+"Field("+flat+"),") <= pyWidth:
		fmt.Fprintf(b, "%sField(%s),\n", indent, flat)
	case width(inner+flat) <= pyWidth:
		fmt.Fprintf(b, "%sField(\n%s%s\n%s),\n", indent, inner, flat, indent)
	default:
		fmt.Fprintf(b, "%sField(\n%s%s,\n%s),\n", indent, inner, strings.Join(args, ",\n"+inner), indent)
	}
}

func width(s string) int { return len([]rune(s)) }

func pyBool(v bool) string {
	if v {
		return "True"
	}
	return "False"
}

func pyTuple(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = pyString(w)
	}
	if len(words) == 1 {
		return "(" + quoted[0] + ",)"
	}
	return "(" + strings.Join(quoted, ", ") + ")"
}

// pyString writes a Python string literal. Go's escapes of valid UTF-8 are also
// Python's; only the quotes differ, which are single where that saves escapes.
func pyString(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if strings.Count(s, `"`) <= strings.Count(s, "'") {
		return strconv.Quote(s)
	}
	inner := strings.ReplaceAll(strconv.Quote(s), `\"`, `"`)
	return "'" + strings.ReplaceAll(inner[1:len(inner)-1], "'", `\'`) + "'"
}
