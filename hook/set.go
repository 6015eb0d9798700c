package hook

// Set is an engine's hooks as they stood at one moment. A turn that takes one at
// its beginning sees the same hooks to its end, whatever is swapped or switched
// meanwhile.
type Set struct{ table *table }

// Pin returns the hooks as they stand now.
func (e *Engine) Pin() Set { return Set{e.table.Load()} }

// Chain returns the hooks of the set at point that see who, nil when nobody
// stands there.
func (s Set) Chain(point *Point, who Who) *Chain {
	if s.table == nil {
		return nil
	}
	if s.table.narrow {
		return NewChain(point, who, s.table.hooks, s.table.isOff)
	}
	return s.table.chains[point]
}
