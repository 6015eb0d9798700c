package hook

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

func BenchmarkNoHook(b *testing.B) {
	e, p := mustEngine(b, nil, passing("elsewhere", OutgoingText)), text(IncomingMessage, "hi")
	b.ReportAllocs()
	for b.Loop() {
		_ = e.Run(context.Background(), e.Chain(p.Point(), Who{}), p, Asker{Key: "k", Turn: "t"})
	}
}

// Five hooks stand at one point only in the plugin dialect.
func BenchmarkFiveFuncs(b *testing.B) {
	var hooks []*Hook
	for i := range 5 {
		hooks = append(hooks, passing(fmt.Sprint(i), PreToolCall))
	}
	e, p := mustEngine(b, nil, hooks...), NewPayload(PointNamed(PreToolCall))
	b.ReportAllocs()
	for b.Loop() {
		if r := e.Run(context.Background(), e.Chain(p.Point(), Who{}), p, Asker{Key: "k"}); r.Kind != Continue {
			b.Fatal(r)
		}
	}
}

func BenchmarkOneFunc(b *testing.B) {
	e, p := mustEngine(b, nil, passing("one", IncomingMessage)), text(IncomingMessage, "hi")
	b.ReportAllocs()
	for b.Loop() {
		_ = e.Run(context.Background(), e.Chain(p.Point(), Who{}), p, Asker{Key: "k"})
	}
}

func BenchmarkFuncThroughHost(b *testing.B) {
	h := passing("one", IncomingMessage)
	h.Host, h.Func = h.Func, nil
	e, p := mustEngine(b, nil, h), text(IncomingMessage, "hi")
	b.ReportAllocs()
	for b.Loop() {
		_ = e.Run(context.Background(), e.Chain(p.Point(), Who{}), p, Asker{Key: "k"})
	}
}

// messages200K is what a long conversation sends at each model call.
func messages200K() []byte {
	one := fmt.Sprintf(`{"role":"user","content":%q,"meta":{"n":[1,2,3],"ok":true}}`, strings.Repeat("lorem ipsum \"dolor\" ", 20))
	all := strings.Repeat(one+",", 200*1024/len(one))
	return []byte("[" + strings.TrimSuffix(all, ",") + "]")
}

func BenchmarkShapeOf200KB(b *testing.B) {
	raw := messages200K()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if err := Objects.fits(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSameJSONOf200KB(b *testing.B) {
	raw := messages200K()
	other := append([]byte(" "), raw...)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if !sameJSON(raw, other) {
			b.Fatal("differs")
		}
	}
}
