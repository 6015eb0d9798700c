package sqlstore

import "container/list"

// lru keeps the values used last. It is not safe for concurrent use.
type lru[K comparable, V any] struct {
	limit int
	busy  func(V) bool // values that must stay, over the limit if need be
	order *list.List   // of entry[K, V], the newest first
	found map[K]*list.Element
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](limit int, busy func(V) bool) *lru[K, V] {
	return &lru[K, V]{limit: limit, busy: busy, order: list.New(), found: map[K]*list.Element{}}
}

func (c *lru[K, V]) get(key K) (value V, ok bool) {
	e, ok := c.found[key]
	if !ok {
		return value, false
	}
	c.order.MoveToFront(e)
	return e.Value.(entry[K, V]).value, true
}

func (c *lru[K, V]) put(key K, value V) {
	c.drop(key)
	c.found[key] = c.order.PushFront(entry[K, V]{key, value})
	for e := c.order.Back(); e != nil && len(c.found) > c.limit; {
		old := e.Value.(entry[K, V])
		e = e.Prev()
		if !c.busy(old.value) {
			c.drop(old.key)
		}
	}
}

func (c *lru[K, V]) drop(key K) {
	if e, ok := c.found[key]; ok {
		c.order.Remove(e)
		delete(c.found, key)
	}
}
