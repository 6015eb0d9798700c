// Package logline prepares what other programs print for a log: a long line is cut, and
// what the log masks is masked before, for of a part of a secret nobody knows that it
// was one.
//
//	buf = append(buf, part[:min(logline.Read-len(buf), len(part))]...) // and count the rest
//	text, cut := logline.Cut(log, string(buf), rest)
package logline

import (
	"log/slog"
	"strings"
)

const (
	// Most is how many bytes of a line are logged.
	Most = 4 << 10
	// Read is how many bytes of a line are to be read, so that what is masked is whole
	// where the line is cut.
	Read = Most + ahead

	ahead = 8 << 10
)

// Cut gives what is logged of a line, and how many bytes of it are not. rest is how
// many bytes it had after the text.
func Cut(log *slog.Logger, text string, rest int64) (shown string, cut int64) {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if rest == 0 && len(text) <= Most {
		return text, 0
	}
	shown = Masked(log, text)
	most := Most
	if rest > 0 { // what is masked at its end may not be whole
		most = min(Most, max(0, len(shown)-ahead))
	}
	if rest == 0 && len(shown) <= most {
		return shown, 0
	}
	shown = strings.ToValidUTF8(shown[:min(most, len(shown))], "\uFFFD")
	return shown, max(rest+int64(len(text)-Most), 1)
}

// Masked takes out of a text what the log takes out, if it does: its handler has the
// method Mask then.
func Masked(log *slog.Logger, text string) string {
	if h, ok := log.Handler().(interface{ Mask(text string) string }); ok {
		return h.Mask(text)
	}
	return text
}
