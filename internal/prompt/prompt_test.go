package prompt

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tiktoken-go/tokenizer"

	"github.com/belay-run/belay/internal/chat"
)

func msg(role, text string) json.RawMessage {
	raw, err := json.Marshal(map[string]any{"role": role, "content": text})
	if err != nil {
		panic(err)
	}
	return raw
}

func calls(text string, ids ...string) json.RawMessage {
	type function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	var list []map[string]any
	for _, id := range ids {
		list = append(list, map[string]any{"id": id, "type": "function", "function": function{"find", `{"q":"` + text + `"}`}})
	}
	raw, err := json.Marshal(map[string]any{"role": "assistant", "content": nil, "tool_calls": list})
	if err != nil {
		panic(err)
	}
	return raw
}

func result(id, text string) json.RawMessage {
	raw, err := json.Marshal(map[string]any{"role": "tool", "tool_call_id": id, "content": text})
	if err != nil {
		panic(err)
	}
	return raw
}

// words is a text of about n tokens.
func words(n int) string { return strings.TrimSpace(strings.Repeat("hello ", n)) }

func TestFit(t *testing.T) {
	system, user := msg("system", words(10)), msg("user", words(10))
	long := msg("user", words(400))
	tests := []struct {
		name     string
		messages []json.RawMessage
		budget   int
		protect  []int
		want     []int // indexes kept
		over     bool
	}{
		{"all fits by bytes", []json.RawMessage{system, user}, 10_000, nil, []int{0, 1}, false},
		{"all fits by count", []json.RawMessage{system, long, user}, 450, nil, []int{0, 1, 2}, false},
		{"the oldest goes", []json.RawMessage{system, long, msg("assistant", words(20)), user}, 60, nil, []int{0, 2, 3}, false},
		{"only as many as needed", []json.RawMessage{system, msg("user", words(100)), msg("assistant", words(100)), user}, 140, nil, []int{0, 2, 3}, false},
		{"the last user message stays though old", []json.RawMessage{system, long, msg("assistant", "a"), msg("assistant", "b")}, 50, nil, []int{0, 1}, true},
		{"the system prompt stays though huge", []json.RawMessage{msg("developer", words(400)), msg("system", words(400)), msg("user", "a"), user}, 50, nil, []int{0, 1, 3}, true},
		{"a later system message may go", []json.RawMessage{system, user, msg("system", words(400)), user}, 50, nil, []int{0, 3}, false},
		{"the protected stays", []json.RawMessage{system, long, user, msg("system", words(10))}, 60, []int{3}, []int{0, 2, 3}, false},
		{"a batch goes as one", []json.RawMessage{system, calls("x", "1", "2"), result("1", words(200)), result("2", "short"), user}, 60, nil, []int{0, 4}, false},
		{"a batch stays as one", []json.RawMessage{system, calls("x", "1", "2"), result("1", words(200)), result("2", "short"), user}, 60, []int{3}, []int{0, 1, 2, 3, 4}, true},
		{"a batch with a note between", []json.RawMessage{system, calls("x", "1"), msg("system", "note"), result("1", words(200)), user}, 60, nil, []int{0, 2, 4}, false},
		{"ids used twice belong to the nearest call", []json.RawMessage{system, calls("x", "1"), result("1", words(200)), calls("y", "1"), result("1", "b"), user}, 90, nil, []int{0, 3, 4, 5}, false},
		{"a tool message whose call is nowhere", []json.RawMessage{system, result("9", words(200)), user}, 60, nil, []int{0, 2}, false},
		{"what is no chat message", []json.RawMessage{json.RawMessage(`{"role":7,"content":[1,{"x":null}],"tool_calls":{}}`), json.RawMessage(`{}`), user}, 20, nil, []int{1, 2}, false},
		{"no room at all", []json.RawMessage{system, msg("assistant", "a"), user}, -5, nil, []int{0, 2}, true},
		{"nothing", nil, 0, nil, nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := NewFitter("gpt-4o").Fit(tt.messages, tt.budget, func(i int) bool { return slices.Contains(tt.protect, i) })
			var want []json.RawMessage
			for _, i := range tt.want {
				want = append(want, tt.messages[i])
			}
			if !equal(got.Messages, want) {
				t.Errorf("kept %s\nwant %s", got.Messages, want)
			}
			if got.Dropped != len(tt.messages)-len(want) || got.Over != tt.over {
				t.Errorf("dropped %d, over %v; want %d, %v", got.Dropped, got.Over, len(tt.messages)-len(want), tt.over)
			}
		})
	}
}

func equal(a, b []json.RawMessage) bool {
	return slices.EqualFunc(a, b, func(x, y json.RawMessage) bool { return string(x) == string(y) })
}

func TestCost(t *testing.T) {
	tests := []struct {
		name, message string
		atLeast, most int
	}{
		{"text", string(msg("user", words(100))), 100, 110},
		{"escaped text costs what it says", `{"role":"user","content":"` + strings.Repeat(`\u4f60\u597d`, 50) + `"}`, 20, 130},
		{"parts", `{"role":"user","content":[{"type":"text","text":"` + words(100) + `"}]}`, 100, 110},
		{"an image", `{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("QUJD", 5000) + `"}}]}`, 1500, 1510},
		{"calls", string(calls(words(100), "call_1")), 100, 125},
		{"unknown keys", `{"role":"user","content":"a","reasoning":"` + words(100) + `"}`, 100, 110},
		{"nothing", `{}`, 4, 6},
		{"deep", `{"a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, 100, 10010},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := NewFitter("gpt-4o")
			for range 2 { // counted, then remembered
				if got := f.facts(json.RawMessage(tt.message), 1<<30).tokens; got < tt.atLeast || got > tt.most {
					t.Errorf("cost %d, want %d to %d", got, tt.atLeast, tt.most)
				}
			}
		})
	}
}

func TestCountByPiecesIsNearTheWhole(t *testing.T) {
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{
		"prose": strings.Repeat("The clinic opens at 9:30, and closes at 17:45 — except on Sundays (see below).\n", 60),
		"json":  strings.Repeat(`{"id": 12345678, "name": "Übung", "ok": true}, `, 100),
		"cjk":   strings.Repeat("你好，世界。我们明天上午九点见面。", 200),
		"emoji": strings.Repeat("🙂👍🏽", 600),
		"runs":  strings.Repeat("a", 3000) + strings.Repeat("-", 3000),
	}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			want, err := codec.Count(text)
			if err != nil {
				t.Fatal(err)
			}
			got, whole := o200k.count(text, len(text))
			if slack := 2 * (len(text)/piece + 1); !whole || got < want-slack || got > want+slack {
				t.Errorf("counted %d by pieces, %d as a whole", got, want)
			}
		})
	}
}

// A megabyte of blanks and newlines took the tokenizer's own pattern minutes.
func TestCountingIsLinear(t *testing.T) {
	for name, unit := range map[string]string{"blank lines": " \n", "blanks": "  ", "bytes that are no text": "\xff\xfe", "letters": "Aa"} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			if n, _ := o200k.count(strings.Repeat(unit, 100_000), 1<<30); n == 0 {
				t.Error("nothing counted")
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("200 KB took %v", took)
			}
		})
	}
}

func TestCountingEndsAtTheLimit(t *testing.T) {
	huge := msg("user", words(100_000))
	f := NewFitter("gpt-4o")
	if n := f.facts(huge, 1000).tokens; n < 1000 || n > 2000 {
		t.Errorf("counted %d of a message that is over a limit of 1000", n)
	}
	if n := f.facts(huge, 500).tokens; n < 1000 {
		t.Errorf("a count over the limit was not remembered: %d", n)
	}
	if n := f.facts(huge, 1<<30).tokens; n < 100_000 {
		t.Errorf("a cut count was taken for a whole one: %d", n)
	}
}

func TestVocabularyIsLoadedOnlyNearTheBudget(t *testing.T) {
	f := NewFitter("some-model")
	f.words = &vocabulary{load: func() (tokenizer.Codec, error) {
		t.Error("the vocabulary was loaded")
		return nil, fmt.Errorf("not wanted")
	}}
	messages := []json.RawMessage{msg("system", words(1000)), msg("user", "hi")}
	if got := f.Fit(messages, 10_000, nil); got.Dropped != 0 {
		t.Error("dropped something")
	}
}

func TestVocabularyFor(t *testing.T) {
	for model, want := range map[string]*vocabulary{
		"gpt-4o-mini": o200k, "gpt-4.1": o200k, "gpt-5": o200k, "o3": o200k, "": o200k, "llama-3": o200k,
		"gpt-4": cl100k, "gpt-4-turbo": cl100k, "openai/gpt-3.5-turbo": cl100k, "ft:gpt-4-0613:x": cl100k, "ft:gpt-4o:x": o200k,
	} {
		if vocabularyFor(model) != want {
			t.Errorf("%q has another vocabulary than %s", model, want.encoding)
		}
	}
}

func TestTokens(t *testing.T) {
	f := NewFitter("gpt-4")
	for range 2 {
		if n := f.Tokens([]byte(words(50))); n != 50 {
			t.Errorf("%d tokens, want 50", n)
		}
	}
}

func TestWithinTakesTheToolsOff(t *testing.T) {
	messages := []json.RawMessage{msg("system", words(10)), msg("user", words(100)), msg("user", "now")}
	tool := chat.Tool{Name: "find", Description: words(100), Parameters: json.RawMessage(`{"type":"object"}`)}
	fit := NewFitter("gpt-4o").Within(200)
	if kept, cut := fit(messages, nil, nil); cut != 0 || len(kept) != 3 {
		t.Errorf("without tools %d were kept and %d cut", len(kept), cut)
	}
	if kept, cut := fit(messages, []chat.Tool{tool}, nil); cut != 1 || len(kept) != 2 {
		t.Errorf("with a tool %d were kept and %d cut", len(kept), cut)
	}
	if kept, cut := fit(messages, []chat.Tool{tool, tool, tool}, nil); cut != 1 || len(kept) != 2 {
		t.Errorf("with tools over the budget %d were kept and %d cut", len(kept), cut)
	}
	if _, cut := NewFitter("gpt-4o").Within(NoBudget)(messages, []chat.Tool{tool}, nil); cut != 0 {
		t.Errorf("without a budget %d were cut", cut)
	}
}

func TestMemoForgetsWhatIsNotUsed(t *testing.T) {
	f := NewFitter("gpt-4o")
	f.memo.limit = 10
	used := msg("user", "used all the time")
	for i := range 200 {
		f.facts(used, 100)
		f.facts(msg("user", fmt.Sprint(i)), 100)
		if n := len(f.memo.young) + len(f.memo.old); n > 20 {
			t.Fatalf("%d entries", n)
		}
	}
	if _, ok := f.memo.get(f.memo.key(used), 100); !ok {
		t.Error("what is in use was forgotten")
	}
}

func TestFitterIsSafeForManyGoroutines(t *testing.T) {
	f := NewFitter("gpt-4o")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				f.Fit([]json.RawMessage{msg("system", "s"), msg("user", words(i+g)), msg("user", "x")}, 12, nil)
			}
		})
	}
	wg.Wait()
}
