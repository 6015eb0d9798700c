package pyhost

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// Frame types; see the package comment.
const (
	frameLoad   = 'L'
	frameHook   = 'H'
	frameTool   = 'T'
	frameCancel = 'C'
	framePing   = 'P'
	frameQuit   = 'Q'

	frameImporting  = 'I'
	frameReady      = 'R'
	frameCannot     = 'X'
	frameBegun      = 'B'
	frameBeat       = 'b'
	frameSaid       = 's'
	frameWrote      = 'w'
	frameHookAnswer = 'A'
	frameToolAnswer = 't'
)

const (
	frameHead    = 9        // length, type, call id
	maxFrameOut  = 32 << 20 // of the rest of a frame to the worker
	maxFrameIn   = 17 << 20 // of the rest of a frame from the worker
	trustedAlloc = 1 << 20  // longer bodies are allocated as their bytes arrive
	readBuffer   = 64 << 10
	missingField = 0xFFFFFFFF
)

// frame is one message. Its body belongs to whoever holds the frame.
type frame struct {
	kind byte
	id   uint32
	body []byte
}

// protocolError says that what came through the pipe is no frame of a worker.
type protocolError struct{ what string }

func (e *protocolError) Error() string { return e.what }

func broken(format string, args ...any) error {
	return &protocolError{what: fmt.Sprintf(format, args...)}
}

// readFrame reads the next frame. A wrong one gives a *protocolError; io.EOF is
// returned only between frames. However much a frame announces, no more than
// twice what has arrived is allocated.
func readFrame(r *bufio.Reader) (frame, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if err == io.ErrUnexpectedEOF {
			return frame{}, broken("the pipe ended inside the head of a frame")
		}
		return frame{}, err
	}
	size := binary.BigEndian.Uint32(head[:4])
	f := frame{kind: head[4], id: binary.BigEndian.Uint32(head[5:])}
	if size < frameHead-4 || size > maxFrameIn {
		return frame{}, broken("a frame announced %d bytes", size)
	}
	if !fromWorker(f.kind) {
		return frame{}, broken("a frame has the unknown type 0x%02x", f.kind)
	}
	body, err := readBody(r, int(size)-(frameHead-4))
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return frame{}, broken("the pipe ended inside a frame")
	}
	f.body = body
	return f, err
}

func readBody(r io.Reader, size int) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	body := make([]byte, min(size, trustedAlloc))
	for have := 0; ; {
		n, err := io.ReadFull(r, body[have:])
		if have += n; err != nil {
			return nil, err
		}
		if have == size {
			return body, nil
		}
		grown := make([]byte, min(size, 2*have))
		copy(grown, body)
		body = grown
	}
}

func fromWorker(kind byte) bool {
	switch kind {
	case frameImporting, frameReady, frameCannot, frameBegun, frameBeat, frameSaid, frameWrote, frameHookAnswer, frameToolAnswer:
		return true
	}
	return false
}

// appendFrame appends a frame to b. fill appends the body; nil means none.
func appendFrame(b []byte, kind byte, id uint32, fill func([]byte) []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, kind)
	b = binary.BigEndian.AppendUint32(b, id)
	if fill != nil {
		b = fill(b)
	}
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}
