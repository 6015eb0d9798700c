package pyhost

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
)

// However the reader dawdles, frames arrive whole and in the order of sending,
// and sending never waits for it.
func TestOutbox(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	box, err := newOutbox(out, func() {}, func(err error) { t.Errorf("failed: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(box.run)
	const frames = 3000
	size := func(i int) int {
		if i%50 == 0 {
			return 100_000 + i
		}
		return i % 700
	}
	sent := make(chan struct{}, frames)
	running.Go(func() {
		for i := range frames {
			box.send(func(b []byte) []byte {
				return appendFrame(b, frameHookAnswer, uint32(i), func(b []byte) []byte {
					return append(b, bytes.Repeat([]byte{byte(i)}, size(i))...)
				})
			})
			sent <- struct{}{}
		}
	})
	for range frames / 2 { // nobody reads yet
		<-sent
	}
	r := bufio.NewReaderSize(in, 16)
	pick := rand.New(rand.NewPCG(1, 2))
	for i := range frames {
		var head [frameHead]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			t.Fatal(err)
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:])-5)
		for have := 0; have < len(body); {
			n, err := r.Read(body[have:min(len(body), have+1+pick.IntN(9000))])
			if err != nil {
				t.Fatal(err)
			}
			have += n
		}
		if id := binary.BigEndian.Uint32(head[5:]); id != uint32(i) || !bytes.Equal(body, bytes.Repeat([]byte{byte(i)}, size(i))) {
			t.Fatalf("frame %d arrived as %d with %d bytes", i, id, len(body))
		}
	}
	box.close()
	running.Wait()
	_ = out.Close()
	_ = in.Close()
}
