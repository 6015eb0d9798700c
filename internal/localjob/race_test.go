//go:build race

package localjob_test

// slower is how much longer things may take under the race detector.
const slower = 20
