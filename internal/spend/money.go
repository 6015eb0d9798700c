package spend

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
)

// Money is in millionths of the currency's unit.
type Money int64

const unit = 1_000_000

// String writes the amount with two to six decimals, such as 0.05.
func (m Money) String() string {
	sign, n := "", uint64(m)
	if m < 0 {
		sign, n = "-", -n
	}
	fraction := strings.TrimRight(fmt.Sprintf("%06d", n%unit), "0")
	return fmt.Sprintf("%s%d.%-02s", sign, n/unit, fraction+strings.Repeat("0", max(0, 2-len(fraction))))
}

var errAmount = errors.New("is no amount: write a decimal such as 12 or 0.075, with at most six digits after the point")

// ParseMoney reads a decimal exactly.
func ParseMoney(text string) (Money, error) {
	whole, fraction, point := strings.Cut(text, ".")
	if whole == "" || point && fraction == "" || len(fraction) > 6 || len(whole) > 12 {
		return 0, errAmount
	}
	var n int64
	for _, c := range whole + fraction + strings.Repeat("0", 6-len(fraction)) {
		if c < '0' || c > '9' {
			return 0, errAmount
		}
		n = n*10 + int64(c-'0')
	}
	return Money(n), nil
}

// Price is of a million tokens.
type Price struct{ Input, Output, Cached, CacheWritten Money }

// Of is what a usage costs, rounded up. What is too much for a number is the
// greatest there is.
func (p Price) Of(u Usage) Money {
	cached, written := max(0, u.Cached), max(0, u.CacheWritten)
	plain := max(0, u.Input-cached-written)
	var hi, lo uint64
	for _, part := range []struct {
		price  Money
		tokens int
	}{{p.Input, plain}, {p.Output, max(0, u.Output)}, {p.Cached, cached}, {p.CacheWritten, written}} {
		h, l := bits.Mul64(uint64(max(0, part.price)), uint64(part.tokens))
		var carry uint64
		lo, carry = bits.Add64(lo, l, 0)
		hi += h + carry
	}
	if hi >= unit {
		return math.MaxInt64
	}
	q, rest := bits.Div64(hi, lo, unit)
	if rest > 0 {
		q++
	}
	return Money(min(q, math.MaxInt64))
}

// atMost is the most that so many tokens cost: all input at its dearest.
func (p Price) atMost(input, output int) Money {
	return Price{Input: max(p.Input, p.Cached, p.CacheWritten), Output: p.Output}.Of(Usage{Input: input, Output: output})
}
