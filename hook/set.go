package hook

// Set is an engine's hooks as they stood at one moment. A turn that takes one at
// its beginning sees the same hooks to its end, whatever is swapped or switched
// meanwhile. The zero Set has none.
type Set struct{ table *table }

// table is one immutable set of hooks with its chains.
type table struct {
	hooks  []*Hook
	off    map[string]bool
	points map[*Point]standing // only points where hooks stand
}

// standing is the hooks of one point. When none has a match there is one chain
// for every caller.
type standing struct {
	hooks  []*Hook
	narrow bool
	chain  *Chain
}

func newTable(hooks []*Hook, off map[string]bool) *table {
	t := &table{hooks: hooks, off: off, points: map[*Point]standing{}}
	for _, h := range hooks {
		s := t.points[h.Point]
		s.hooks, s.narrow = append(s.hooks, h), s.narrow || h.Match.narrow()
		t.points[h.Point] = s
	}
	for point, s := range t.points {
		if !s.narrow {
			s.chain = newChain(point, Who{}, s.hooks, off)
			t.points[point] = s
		}
	}
	return t
}

// Pin returns the hooks as they stand now.
func (e *Engine) Pin() Set { return Set{e.table.Load()} }

// Chain returns the hooks of the set at point that see who, nil when nobody
// stands there.
func (s Set) Chain(point *Point, who Who) *Chain {
	if s.table == nil {
		return nil
	}
	at := s.table.points[point]
	if at.narrow {
		return newChain(point, who, at.hooks, s.table.off)
	}
	return at.chain
}
