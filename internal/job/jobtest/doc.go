// Package jobtest holds durable jobs to their promises.
//
// [TestJournal] is the suite that every journal passes:
//
//	func TestJournal(t *testing.T) {
//		jobtest.TestJournal(t, func(t *testing.T) job.Journal { return open(t) })
//	}
//
// [Simulate] runs an engine under random kills, power failures, full disks,
// delays, reorderings and cancellations, in the fake time of a synctest bubble.
// A run follows from its seed alone; one that fails prints how to run it again.
//
// [CheckFlows] reads the code of flows and reports what makes a run differ from
// its record: clocks, goroutines, randomness, map order.
//
// [Memory] is a journal in memory, which can also lose what a power failure
// would take.
package jobtest
