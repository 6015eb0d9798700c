package app

import (
	"container/list"
	"sync"

	"github.com/belay-run/belay/internal/conversation"
)

// recordCache keeps the records of the conversations that spoke last in memory.
// The desk sees to it that one turn at a time uses a record.
type recordCache struct {
	size  int
	mu    sync.Mutex
	order *list.List // of *cached, the newest first
	at    map[string]*list.Element
}

type cached struct {
	sender string
	rec    *conversation.Record
}

func newRecordCache(size int) *recordCache {
	return &recordCache{size: size, order: list.New(), at: map[string]*list.Element{}}
}

func (c *recordCache) get(sender string) *conversation.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.at[sender]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).rec
}

func (c *recordCache) put(sender string, rec *conversation.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.at[sender]; e != nil {
		e.Value.(*cached).rec = rec
		c.order.MoveToFront(e)
		return
	}
	c.at[sender] = c.order.PushFront(&cached{sender, rec})
	if c.order.Len() > c.size {
		last := c.order.Back()
		delete(c.at, last.Value.(*cached).sender)
		c.order.Remove(last)
	}
}

func (c *recordCache) drop(sender string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.at[sender]; e != nil {
		delete(c.at, sender)
		c.order.Remove(e)
	}
}

// deletions remembers for a while which conversations were deleted, so that an
// observer that ends afterwards brings none back.
type deletions struct {
	mu sync.Mutex
	at map[string]string // sender → an id made at the deletion; ids sort by time
}

func (d *deletions) add(sender, id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at == nil || len(d.at) > 10_000 {
		d.at = map[string]string{} // so many that the first are long over
	}
	d.at[sender] = id
}

// before says whether the turn is older than the conversation's deletion.
func (d *deletions) before(sender, turnID string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	id, deleted := d.at[sender]
	return deleted && turnID < id
}
