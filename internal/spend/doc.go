// Package spend counts what model calls cost and keeps them within budgets.
//
// Before a call its cost at most is reserved, and the call is refused when that is
// more than a budget leaves; when it has ended, the reservation is let go and what it
// really cost is charged:
//
//	entry, err := ledger.Begin(call, spend.Need{Input: 1200, Output: 500})
//	if err != nil { // *OverBudget
//		...
//	}
//	got := ask(entry.Cap())
//	entry.End(spend.Outcome{Status: 200, Usage: got.Usage})
//
// Reservations are made under one lock, so calls side by side never spend more than
// there is. Nobody waits for the disk: rows are written behind, many in one
// transaction, and Flush waits for those of a job. A call whose process died is
// counted with its reservation, for nobody knows how it ended.
//
// Money is counted in whole millionths of a unit and rounded up, tokens as they are.
// Days and months are those of UTC; a call belongs to the day on which it began.
package spend
