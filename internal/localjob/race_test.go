//go:build race

package localjob_test

// slower is how much slower things are under the race detector; tests do less.
const slower = 10
