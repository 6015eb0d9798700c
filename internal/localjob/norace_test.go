//go:build !race

package localjob_test

// slower is how much slower things are: not at all, without the race detector.
const slower = 1
