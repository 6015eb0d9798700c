package httpio

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// Refusal says why a request is not taken, with nothing of its body.
type Refusal struct {
	Status int
	Detail string
	Hint   string // "" when there is nothing to add
}

// ReadBody reads a JSON body whole, as [ReadAll] does, and puts it in the request's
// place of it. No key of an object may be there twice.
func ReadBody(w *Writer, r *http.Request, most int64, within time.Duration) *Refusal {
	body, refusal := ReadAll(w, r, most, within)
	if refusal != nil {
		return refusal
	}
	if doubled(body) {
		return &Refusal{http.StatusUnprocessableEntity, "the body has a key twice", ""}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// ReadAll reads a body whole that says it is JSON, in UTF-8 and of at most so many
// bytes. within is the time that [Writer.ReadUntil] gave it.
func ReadAll(w *Writer, r *http.Request, most int64, within time.Duration) ([]byte, *Refusal) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	switch {
	case err != nil || kind != "application/json", charset != "" && !strings.EqualFold(charset, "utf-8"):
		return nil, &Refusal{http.StatusUnsupportedMediaType, "the body must be JSON in UTF-8", "send Content-Type: application/json"}
	case r.Header.Get("Content-Encoding") != "":
		return nil, &Refusal{http.StatusUnsupportedMediaType, "the body has a Content-Encoding", "send it as it is"}
	}
	// Nothing that was left unread may pass for the connection's next request.
	refuse := func(status int, detail string) ([]byte, *Refusal) {
		w.Header().Set("Connection", "close")
		return nil, &Refusal{status, detail, ""}
	}
	tooLong := fmt.Sprintf("a body may have %d bytes at most", most)
	if r.ContentLength > most {
		return refuse(http.StatusRequestEntityTooLarge, tooLong)
	}
	var body bytes.Buffer
	body.Grow(int(min(max(r.ContentLength, 0), atOnce)) + bytes.MinRead)
	_, err = body.ReadFrom(http.MaxBytesReader(w, r.Body, most))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return refuse(http.StatusRequestEntityTooLarge, tooLong)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(http.StatusRequestTimeout, fmt.Sprintf("the body did not come whole within %s", within))
	case err != nil:
		return refuse(http.StatusBadRequest, "the body did not come whole")
	case !utf8.Valid(body.Bytes()):
		return nil, &Refusal{http.StatusUnprocessableEntity, "the body is not UTF-8", ""}
	}
	w.ReadUntil(time.Time{}) // else it would end the request's context too
	return body.Bytes(), nil
}

// atOnce is what is made room for because a client says that it comes.
const atOnce = 64 << 10

// doubled says whether a JSON object has a key twice. Programs differ on which of
// the two counts, so neither does. What is no object is judged elsewhere.
func doubled(body []byte) bool {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return false
		}
		if seen[key] {
			return true
		}
		seen[key] = true
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return false
		}
	}
	return false
}

// Allowed says which methods the path of a request takes that no route takes; "" when
// there is no such path. The answer's header has them too.
func Allowed(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) string {
	h, _ := mux.Handler(r)
	refusal := &refused{header: http.Header{}}
	h.ServeHTTP(refusal, r)
	if refusal.status != http.StatusMethodNotAllowed {
		return ""
	}
	allow := refusal.header.Get("Allow")
	w.Header().Set("Allow", allow)
	return allow
}

// refused takes the mux's own answer, for its status.
type refused struct {
	header http.Header
	status int
}

func (r *refused) Header() http.Header         { return r.header }
func (r *refused) WriteHeader(status int)      { r.status = status }
func (r *refused) Write(p []byte) (int, error) { return len(p), nil }
