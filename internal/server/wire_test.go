package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/turn"
)

// blocking is a service whose turns begin, and end when their context does or
// they are let go.
type blocking struct {
	fake
	began  chan struct{}
	goOn   chan struct{}
	causes chan error // why a turn's context ended
}

func newBlocking() *blocking {
	b := &blocking{began: make(chan struct{}, 64), goOn: make(chan struct{}), causes: make(chan error, 64)}
	b.talk = func(ctx context.Context, in Inbound, out turn.Out) (turn.Report, error) {
		out.Text(turn.Utterance{Text: "first"})
		b.began <- struct{}{}
		select {
		case <-ctx.Done():
			b.causes <- context.Cause(ctx)
			return turn.Report{Turn: "turn-1", Status: turn.Cancelled}, nil
		case <-b.goOn:
			return echo(ctx, in, out)
		}
	}
	return b
}

// Whoever goes away cancels the turn, whichever way the message came in.
func TestAClientThatGoesAwayCancelsItsTurn(t *testing.T) {
	for name, path := range map[string]string{"webhook": webhook, "lines": webhook + "?stream=true", "events": chat} {
		t.Run(name, func(t *testing.T) {
			b := newBlocking()
			r := start(t, b, Config{})
			body := `{"sender":"u","message":"hi"}`
			if name == "events" {
				body = `{"message":"hi"}`
			}
			ctx, leave := context.WithCancel(context.Background())
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				resp, err := r.client.Do(r.request(t, ctx, path, body, "Accept", "text/event-stream"))
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}()
			within(t, b.began, "the turn's beginning")
			leave()
			<-gone
			within(t, b.causes, "the turn's cancellation")
		})
	}
}

// A client that stops reading is given up after a while; the turn's texts do not
// wait for it before that.
func TestASlowReaderHoldsNoTurn(t *testing.T) {
	said, causes := make(chan time.Duration, 1), make(chan error, 1)
	r := start(t, &fake{talk: func(ctx context.Context, _ Inbound, out turn.Out) (turn.Report, error) {
		began := time.Now()
		big := strings.Repeat("x", 64<<10)
		for range 400 { // 25 MB: no socket takes that in
			out.Delta(big)
		}
		out.Text(turn.Utterance{Text: "end"})
		said <- time.Since(began)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return turn.Report{Status: turn.Cancelled}, nil
	}}, Config{Stall: 200 * time.Millisecond})
	conn, err := net.Dial("tcp", r.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	body := `{"message":"hi"}`
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", chat, len(body), body)
	if took := within(t, said, "the end of the talk"); took > 3*time.Second {
		t.Errorf("the turn waited %v for its client", took)
	}
	within(t, causes, "the turn's cancellation")
}

// A client that is only slow gets everything, with pieces put together.
func TestPiecesThatWaitBecomeOne(t *testing.T) {
	f := newFeed()
	for range 1000 {
		f.Delta("ab")
	}
	f.Text(turn.Utterance{Text: "whole"})
	f.Delta("c")
	f.Delta("d")
	pieces, ended := f.take()
	if len(pieces) != 3 || string(pieces[0].delta) != strings.Repeat("ab", 1000) || pieces[1].text.Text != "whole" || string(pieces[2].delta) != "cd" || ended {
		t.Errorf("%d pieces, ended: %v", len(pieces), ended)
	}
	f.close()
	f.Delta("x")
	f.end()
	if pieces, ended := f.take(); len(pieces) != 0 || !ended {
		t.Errorf("a closed feed holds %d pieces; ended: %v", len(pieces), ended)
	}
}

func TestAStreamBeginsWhileItsTurnWaits(t *testing.T) {
	b := newBlocking()
	talk := b.talk
	b.talk = func(ctx context.Context, in Inbound, out turn.Out) (turn.Report, error) {
		b.began <- struct{}{}
		<-b.goOn
		return talk(ctx, in, out)
	}
	r := start(t, b, Config{})
	resp := r.post(t, chat, `{"message":"hi"}`, "Accept", "text/event-stream") // returns when the header is there
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); line != ": still here\n" {
		t.Errorf("the first line is %q, %v", line, err)
	}
	close(b.goOn)
	if rest := text(t, lines); !strings.Contains(rest, "event: done") {
		t.Errorf("the rest is %q", rest)
	}
}

func TestSlowRequestsAreGivenUp(t *testing.T) {
	r := start(t, &fake{talk: echo}, Config{HeaderTime: 300 * time.Millisecond, BodyTime: 300 * time.Millisecond})
	head := "POST " + webhook + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	var conns []net.Conn
	for i := range 100 {
		conn, err := net.Dial("tcp", r.addr())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		conns = append(conns, conn)
		send := "POST / HT" // the header does not come
		switch i % 3 {
		case 1: // the body does not
			send = head + "Content-Length: 40\r\n\r\n{\"sender\":"
		case 2: // nor does one that nobody wants
			send = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40\r\n\r\n{"
		}
		if _, err := io.WriteString(conn, send); err != nil {
			t.Fatal(err)
		}
	}
	// Others are served meanwhile.
	if resp := r.post(t, webhook, `{"sender":"u","message":"hi"}`); resp.StatusCode != http.StatusOK {
		t.Errorf("status %d", resp.StatusCode)
	}
	for i, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		answer, err := io.ReadAll(conn) // to the end of the connection
		if err != nil {
			t.Fatalf("connection %d was not closed: %v", i, err)
		}
		if i%3 == 1 && !(strings.HasPrefix(string(answer), "HTTP/1.1 408 ") && strings.Contains(string(answer), "problem+json")) {
			t.Errorf("connection %d got %q", i, answer)
		}
	}
}

// A turn may take longer than a request's body may.
func TestTheBodysTimeDoesNotBoundTheTurn(t *testing.T) {
	r := start(t, &fake{talk: func(ctx context.Context, in Inbound, out turn.Out) (turn.Report, error) {
		select {
		case <-ctx.Done():
			return done, ctx.Err()
		case <-time.After(400 * time.Millisecond): // longer than every limit below
			return echo(ctx, in, out)
		}
	}}, Config{HeaderTime: 100 * time.Millisecond, BodyTime: 100 * time.Millisecond, Stall: 100 * time.Millisecond})
	for range 2 { // the second on the connection that the first left
		resp := r.post(t, webhook, `{"sender":"u","message":"hi"}`)
		if got := text(t, resp.Body); resp.StatusCode != http.StatusOK || !strings.Contains(got, "hi") {
			t.Errorf("%d %s", resp.StatusCode, got)
		}
	}
}

func TestTooLongBodiesCloseTheConnection(t *testing.T) {
	r := start(t, &fake{talk: echo}, Config{})
	for name, length := range map[string]string{"announced": "Content-Length: 2000000", "in pieces": "Transfer-Encoding: chunked"} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", r.addr())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s\r\n\r\n", webhook, length)
				if name == "in pieces" {
					fmt.Fprintf(conn, "200000\r\n%s", strings.Repeat("x", 0x200000))
				}
			}()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close || resp.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%d %v", resp.StatusCode, resp.Header)
			}
			_ = resp.Body.Close()
			_ = conn.Close()
			<-sent
		})
	}
}

func TestManyAtOnce(t *testing.T) {
	r := start(t, &fake{talk: func(ctx context.Context, in Inbound, out turn.Out) (turn.Report, error) {
		out.Delta(in.Message.Text)
		return echo(ctx, in, out)
	}}, Config{})
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			said := fmt.Sprintf("text-%d-", i)
			path, body := webhook+"?stream=true", fmt.Sprintf(`{"sender":"u%d","message":%q}`, i, said)
			if i%2 == 0 {
				path, body = fmt.Sprintf("/v1/conversations/u%d/messages", i), fmt.Sprintf(`{"message":%q}`, said)
			}
			resp, err := r.client.Do(r.request(t, context.Background(), path, body, "Accept", "text/event-stream"))
			if err != nil {
				t.Error(err)
				return
			}
			got, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || strings.Count(string(got), "text-") != strings.Count(string(got), said) || !strings.Contains(string(got), said) {
				t.Errorf("%d got %q, %v", i, got, err)
			}
		})
	}
	all.Wait()
}

func TestRunningTurnsEndBeforeTheServer(t *testing.T) {
	b := newBlocking()
	r := start(t, b, Config{Grace: 20 * time.Second})
	answers := make(chan string, 1)
	go func() {
		resp, err := r.client.Do(r.request(t, context.Background(), webhook, `{"sender":"u","message":"last words"}`))
		if err != nil {
			answers <- err.Error()
			return
		}
		defer func() { _ = resp.Body.Close() }()
		got, _ := io.ReadAll(resp.Body)
		answers <- string(got)
	}()
	within(t, b.began, "the turn's beginning")
	r.stop()
	// It listens no more while the turn still runs.
	for {
		conn, err := net.Dial("tcp", r.addr())
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	close(b.goOn)
	if got := within(t, answers, "the answer"); !strings.Contains(got, "last words") {
		t.Errorf("the answer is %q", got)
	}
	if err := within(t, r.ended, "the server's end"); err != nil {
		t.Error(err)
	}
}

func TestTurnsAreCancelledWhenTheTimeToStopIsOver(t *testing.T) {
	b := newBlocking()
	r := start(t, b, Config{Grace: -1})
	answers := make(chan string, 2)
	for _, path := range []string{webhook, chat} {
		go func() {
			body := `{"message":"hi"}`
			if path == webhook {
				body = `{"sender":"u","message":"hi"}`
			}
			resp, err := r.client.Do(r.request(t, context.Background(), path, body, "Accept", "text/event-stream"))
			if err != nil {
				answers <- err.Error()
				return
			}
			defer func() { _ = resp.Body.Close() }()
			got, _ := io.ReadAll(resp.Body)
			answers <- string(got)
		}()
		within(t, b.began, "a turn's beginning")
	}
	r.stop()
	all := within(t, answers, "an answer") + within(t, answers, "the other answer")
	if !strings.Contains(all, `[{"recipient_id":"u","text":"first"}]`) || !strings.Contains(all, "event: done\ndata: {\"turn_id\":\"turn-1\",\"status\":\"cancelled\"}") {
		t.Errorf("the answers are\n%s", all)
	}
	if err := within(t, r.ended, "the server's end"); err != nil {
		t.Error(err)
	}
}

// A message that still waits for its turn is told that the service stops.
func TestMessagesThatWaitAreToldOfTheStop(t *testing.T) {
	began := make(chan struct{})
	r := start(t, &fake{talk: func(ctx context.Context, _ Inbound, _ turn.Out) (turn.Report, error) {
		close(began)
		<-ctx.Done()
		return turn.Report{}, ctx.Err()
	}}, Config{Grace: -1})
	go func() { <-began; r.stop() }()
	resp := r.post(t, webhook, `{"sender":"u","message":"hi"}`)
	if got := text(t, resp.Body); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(got, "stopping") {
		t.Errorf("%d %s", resp.StatusCode, got)
	}
}

func TestShutdownByHand(t *testing.T) {
	r := start(t, &fake{}, Config{})
	if err := r.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := within(t, r.ended, "the server's end"); err != nil {
		t.Error(err)
	}
}

func TestATakenPort(t *testing.T) {
	r := start(t, &fake{}, Config{})
	s, _ := newServer(t, &fake{}, Config{Listen: r.addr()})
	if err := s.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "another one") {
		t.Errorf("error %v", err)
	}
}

func TestFewConnectionsAtATime(t *testing.T) {
	b := newBlocking()
	r := start(t, b, Config{MaxConns: 1})
	got := make(chan error, 2)
	for range 2 {
		go func() {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			resp, err := client.Do(r.request(t, context.Background(), webhook, `{"sender":"u","message":"hi"}`))
			if err == nil && resp.StatusCode != http.StatusOK {
				err = errors.New(resp.Status)
			}
			if resp != nil {
				_ = resp.Body.Close()
			}
			got <- err
		}()
	}
	within(t, b.began, "the first turn")
	select {
	case <-b.began:
		t.Error("two connections were served at a time")
	default:
	}
	close(b.goOn)
	for range 2 {
		if err := within(t, got, "an answer"); err != nil {
			t.Error(err)
		}
	}
}
