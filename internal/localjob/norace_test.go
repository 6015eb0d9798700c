//go:build !race

package localjob_test

// slower is how much longer things may take: no longer, without the race detector.
const slower = 1
