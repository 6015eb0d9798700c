package expect

// Failure is one expectation that was not met.
type Failure struct {
	What    string     // texts, tools, …
	Line    int        // of the expectation in its file; 0 when nothing is written of it
	Message string     // in a line; "" when the diff says it all
	Diff    []DiffLine // what was expected beside what was seen
}

// DiffLine is a line of a difference. Mark is "-" for what was expected and not
// seen, "+" for what was seen and not expected, " " for what was both.
type DiffLine struct{ Mark, Text string }

// Difference compares two lists in order; it is nil when they fit item by item.
func Difference[W, G any](what string, line int, want []W, got []G, fits func(*W, *G) bool, showWant func(*W) string, showGot func(*W, *G) string) *Failure {
	common := pairs(len(want), len(got), func(i, j int) bool { return fits(&want[i], &got[j]) })
	if len(common) == len(want) && len(common) == len(got) {
		return nil
	}
	f := &Failure{What: what, Line: line}
	i, j := 0, 0
	gap := func(toI, toJ int) { // what stands between two items that fit
		from := i
		for ; i < toI; i++ {
			f.Diff = append(f.Diff, DiffLine{"-", showWant(&want[i])})
		}
		for ; j < toJ; j++ {
			var pair *W // what probably should have been here
			if from < toI {
				pair = &want[from]
				from++
			}
			f.Diff = append(f.Diff, DiffLine{"+", showGot(pair, &got[j])})
		}
	}
	for _, at := range common {
		gap(at[0], at[1])
		f.Diff = append(f.Diff, DiffLine{" ", showGot(&want[i], &got[j])})
		i, j = i+1, j+1
	}
	gap(len(want), len(got))
	if len(f.Diff) == 0 || len(want) == 0 && len(got) == 0 {
		return nil
	}
	return f
}

// pairs finds the longest way through two lists on which items fit in pairs.
func pairs(n, m int, fits func(i, j int) bool) [][2]int {
	const most = 1000 // a longer list is compared place by place
	if n > most || m > most {
		var out [][2]int
		for i := range min(n, m) {
			if fits(i, i) {
				out = append(out, [2]int{i, i})
			}
		}
		return out
	}
	length := make([][]int, n+1)
	for i := range length {
		length[i] = make([]int, m+1)
	}
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			length[i][j] = max(length[i+1][j], length[i][j+1])
			if fits(i, j) {
				length[i][j] = max(length[i][j], length[i+1][j+1]+1)
			}
		}
	}
	var out [][2]int
	for i, j := 0, 0; i < n && j < m; {
		switch {
		case length[i][j] == length[i+1][j]:
			i++
		case length[i][j] == length[i][j+1]:
			j++
		default:
			out = append(out, [2]int{i, j})
			i, j = i+1, j+1
		}
	}
	return out
}
