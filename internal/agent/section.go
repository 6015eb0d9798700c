package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/belay-run/belay/internal/yamlfile"
)

// In an agent's files a key without a value is as good as missing: sections end
// with Unknown, not with Close.

// lines reads a list of texts.
func lines(s *yamlfile.Section, key string) []string {
	n := s.Get(key, yamlfile.List, "write one line each, beginning with \"- \"")
	if n == nil {
		return nil
	}
	var out []string
	for _, item := range n.Items {
		switch {
		case item.Kind == yamlfile.Mapping:
			s.R.Mismatch(item, "a line of "+s.Full(key), yamlfile.Text, `a line with ": " in it reads as a mapping; put the line in quotes`)
		case item.Kind != yamlfile.Text:
			s.R.Mismatch(item, "a line of "+s.Full(key), yamlfile.Text, "put it in quotes")
		case strings.TrimSpace(item.Text) == "":
			s.R.On(item).Err("bad-value", "a line of "+s.Full(key)+" is blank", "delete it")
		default:
			out = append(out, strings.TrimSpace(item.Text))
		}
	}
	return out
}

// prose reads a text, or a list of texts as its lines.
func prose(s *yamlfile.Section, key string) string {
	if f := s.Find(key); f != nil && f.Value.Kind == yamlfile.List {
		return strings.Join(lines(s, key), "\n")
	}
	return s.TextOrBlank(key)
}

// count reads a whole number within bounds.
func count(s *yamlfile.Section, key string, least, most, fallback int) int {
	if v := s.Within(key, least, most, fmt.Sprintf("leave it out for %d", fallback)); v != nil {
		return *v
	}
	return fallback
}

// optional reads a whole number that has no default; nil when it is not there.
func optional(s *yamlfile.Section, key string, least int) *int {
	return s.Within(key, least, 10_000_000, "correct the number")
}

const maxSeconds = 3600

// duration reads seconds, or text such as "30s".
func duration(s *yamlfile.Section, key string, fallback time.Duration) time.Duration {
	f := s.Find(key)
	if f == nil {
		return fallback
	}
	d, ok := f.Value.Duration(maxSeconds * time.Second)
	if !ok {
		s.R.On(f.Value).Err("bad-value", fmt.Sprintf("%s must be a number of seconds, more than 0 and at most %d", s.Full(key), maxSeconds), `write for example 10, or "10s"`)
		return fallback
	}
	return d
}

var (
	spans = regexp.MustCompile(`^([0-9]{1,7})([dhm])$`)
	units = map[string]time.Duration{"d": 24 * time.Hour, "h": time.Hour, "m": time.Minute}
)

// span reads a number of days, hours or minutes, such as 90d; 0 when it is not
// there.
func span(s *yamlfile.Section, key string, least, most time.Duration) time.Duration {
	f := s.Find(key)
	if f == nil {
		return 0
	}
	if parts := spans.FindStringSubmatch(f.Value.Text); f.Value.Kind == yamlfile.Text && parts != nil {
		n, err := strconv.Atoi(parts[1])
		if d := time.Duration(n) * units[parts[2]]; err == nil && n <= int(most/units[parts[2]]) && d >= least {
			return d
		}
	}
	s.R.On(f.Value).Err("bad-value", fmt.Sprintf("%s must be a number of days, hours or minutes, from %dh to %dd", s.Full(key), int(least.Hours()), int(most.Hours()/24)),
		"write for example 90d, 36h or 90m")
	return 0
}

// idle makes keys known that this version reads and does nothing with.
func idle(s *yamlfile.Section, keys ...string) {
	for _, key := range keys {
		if f := s.Find(key); f != nil {
			s.R.Key(f).Warn("not-acted-on", s.Full(key)+" is read but not acted on in this version", "nothing needs to change; the agent runs without it")
		}
	}
}

// closeLoosely reports only what looks mistyped as unknown; other keys belong to
// settings that this version does not have.
func closeLoosely(s *yamlfile.Section) {
	for _, f := range s.Rest() {
		if !s.Slip(f) {
			s.R.Key(f).Warn("not-acted-on", fmt.Sprintf("%s in %s is not acted on in this version", yamlfile.Shown(f.Name), s.Called()), "nothing needs to change; the agent runs without it")
		}
	}
}

// tidy is [yamlfile.Shown] without the quotes, for paths.
func tidy(key string) string { return strings.Trim(yamlfile.Shown(key), `"`) }

// asJSON writes a value as JSON. Whole numbers keep all their digits.
func asJSON(r *yamlfile.Reader, n *yamlfile.Node) (json.RawMessage, bool) {
	var b strings.Builder
	if !writeJSON(r, &b, n) {
		return nil, false
	}
	return json.RawMessage(b.String()), true
}

func writeJSON(r *yamlfile.Reader, b *strings.Builder, n *yamlfile.Node) bool {
	switch n.Kind {
	case yamlfile.Null:
		b.WriteString("null")
	case yamlfile.Bool, yamlfile.Whole:
		b.WriteString(n.Text)
	case yamlfile.Number:
		v, err := strconv.ParseFloat(n.Text, 64)
		if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			r.On(n).Err("bad-value", "this number cannot be passed on", "write a finite number")
			return false
		}
		b.WriteString(strconv.FormatFloat(v, 'g', -1, 64))
	case yamlfile.Text:
		quoted, _ := json.Marshal(n.Text) // a string always has a JSON form
		b.Write(quoted)
	case yamlfile.List:
		b.WriteByte('[')
		for i, item := range n.Items {
			if i > 0 {
				b.WriteByte(',')
			}
			if !writeJSON(r, b, item) {
				return false
			}
		}
		b.WriteByte(']')
	case yamlfile.Mapping:
		b.WriteByte('{')
		for i, f := range n.Fields {
			if i > 0 {
				b.WriteByte(',')
			}
			quoted, _ := json.Marshal(f.Name)
			b.Write(quoted)
			b.WriteByte(':')
			if !writeJSON(r, b, f.Value) {
				return false
			}
		}
		b.WriteByte('}')
	}
	return true
}
