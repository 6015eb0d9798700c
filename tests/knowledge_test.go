package tests

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/app"
	"github.com/belay-run/belay/internal/app/apptest"
	"github.com/belay-run/belay/internal/rawjson"
	"github.com/belay-run/belay/internal/step"
)

var references = apptest.Files{
	"tools/simple.py":      simpleTools,
	"references/dogs.md":   "# Dogs\n\nA dog may stay in the garden.\n",
	"references/cats.md":   "# Cats\n\nA cat may stay in the house.\n",
	"references/horses.md": "# Horses\n\nA horse may stay in the stable.\n",
}

// What a model reads when there is nothing to read.
const (
	noQuery  = "No query was given. Nothing was searched."
	noSearch = "The search could not be made; there are no results. Do not guess."
	noIndex  = "There are no reference documents to search."
	noneText = "The search found no passages."
)

func searches(query string) apptest.Answer {
	return apptest.Call("search_knowledge", map[string]any{"query": query})
}

// brokenSearch has every search fail, as a damaged index would.
func brokenSearch(c *app.Config) {
	c.Wrap = func(s step.Steps) step.Steps { return failingSearch{s} }
}

type failingSearch struct{ step.Steps }

func (f failingSearch) Do(c step.Call) (step.Answer, error) {
	if c.Kind != "search" {
		return f.Steps.Do(c)
	}
	r, err := step.NewReplay([]step.Kept{{Key: c.Key, Kind: c.Kind, Input: rawjson.Must(c.Input), Value: json.RawMessage(`{"failed":"broken"}`)}})
	if err != nil {
		return step.Answer{}, err
	}
	return r.Do(c)
}

// read runs a turn that searches, and returns what the model read of it.
func (a planned) read(t *testing.T, sender, query string, p plan) string {
	t.Helper()
	a.Next(sender, searches(query))
	a.say(t, sender, "tell me", p)
	read := toolMessages(a.prompt(t, sender, -1))
	if len(read) != 1 {
		t.Fatalf("tool messages: %q", read)
	}
	if got := a.runs(sender); len(got) != 1 || got[0].Name != "search_knowledge" || got[0].Result != read[0] {
		t.Errorf("tool events: %+v", got)
	}
	return read[0]
}

// sources gives the places of the passages that a model read, in order.
func sources(read string) string {
	var out []string
	for _, line := range strings.Split(read, "\n") {
		if strings.HasPrefix(line, "[") {
			_, place, _ := strings.Cut(line, " ")
			name, _, _ := strings.Cut(strings.TrimPrefix(place, "references/"), ".")
			out = append(out, name)
		}
	}
	return strings.Join(out, " ")
}

func knowledgeHooks(a planned, sender string) []string {
	return a.noted(sender, "see knowledge", "modify knowledge")
}

var bothPoints = []string{"see knowledge_query", "modify knowledge_query", "see knowledge_results", "modify knowledge_results"}

func TestKnowledge(t *testing.T) {
	t.Parallel()
	a := startPlanned(t, references)

	t.Run("T40 query hooks run after the guard against empty queries", func(t *testing.T) {
		for name, args := range map[string]any{"empty": map[string]any{"query": ""}, "blank": map[string]any{"query": " \n\t"}, "missing": map[string]any{},
			"no text": map[string]any{"query": 7}, "null": map[string]any{"query": nil}} {
			t.Run(name, func(t *testing.T) {
				sender := "t40 " + name
				a.Next(sender, apptest.Call("search_knowledge", args))
				a.say(t, sender, "tell me", nil)
				wantSame(t, "hooks asked", knowledgeHooks(a, sender), nil)
				wantSame(t, "what the model read", toolMessages(a.prompt(t, sender, -1)), []string{noQuery})
			})
		}
	})

	t.Run("T40 results hooks get passages, not the model's text of them", func(t *testing.T) {
		read := a.read(t, "t40", "garden", nil)
		wantSame(t, "hooks asked", knowledgeHooks(a, "t40"), bothPoints)
		for _, n := range a.notes("t40", "see knowledge_results", "modify knowledge_results") {
			passages := n.Data["passages"].([]any)
			if len(passages) != 1 {
				t.Fatalf("passages: %v", passages)
			}
			text := passages[0].(map[string]any)["text"].(string)
			if strings.HasPrefix(text, "[1]") || !strings.Contains(read, text) {
				t.Errorf("the passage is %q, the model read %q", text, read)
			}
		}
		if sources(read) != "dogs" {
			t.Errorf("the model read %q", read)
		}
	})

	t.Run("T41 a rewritten query is what is searched", func(t *testing.T) {
		read := a.read(t, "t41q", "garden", plan{"knowledge_query": doUpdate(map[string]any{"query": "stable"})})
		if sources(read) != "horses" {
			t.Errorf("the model read %q", read)
		}
	})

	t.Run("T41 passages may be filtered, reordered, rewritten or emptied", func(t *testing.T) {
		dogs, cats := map[string]any{"text": "Dogs first.", "source": "references/dogs.md#dogs"}, map[string]any{"text": "Then cats."}
		for name, c := range map[string]struct {
			passages []any
			want     string
		}{
			"filtered":  {[]any{dogs}, "[1] references/dogs.md#dogs\nDogs first."},
			"reordered": {[]any{cats, dogs}, "[1]\nThen cats.\n\n[2] references/dogs.md#dogs\nDogs first."},
			"emptied":   {[]any{}, noneText},
			"its own":   {[]any{map[string]any{"text": "Only this.", "source": 7, "scope": nil, "more": []any{1}}}, "[1]\nOnly this."},
		} {
			t.Run(name, func(t *testing.T) {
				read := a.read(t, "t41 "+name, "stay", plan{"knowledge_results": doUpdate(map[string]any{"passages": c.passages})})
				wantSame(t, "what the model read", read, c.want)
				wantNone(t, "a request", inJSON(a.Prompts("t41 "+name)), "may stay in")
			})
		}
	})

	t.Run("T41 a signal does not count at either point", func(t *testing.T) {
		for _, point := range []string{"knowledge_query", "knowledge_results"} {
			for name, step := range map[string]any{"rejection": doReject("planted-signal"), "retry": doRetry("planted-signal")} {
				t.Run(point+" "+name, func(t *testing.T) {
					sender := "t41 " + point + name
					if read := a.read(t, sender, "garden", plan{point: step}); sources(read) != "dogs" {
						t.Errorf("the model read %q", read)
					}
					wantSame(t, "hooks asked", knowledgeHooks(a, sender), bothPoints)
					wantNone(t, "a request", inJSON(a.Prompts(sender)), "planted-signal")
				})
			}
		}
	})

	t.Run("T42 a query hook that fails skips the search", func(t *testing.T) {
		for name, step := range map[string]any{"crash": doCrash("planted-exception-text"), "timeout": doSleep(), "wrong return": doReturn("text"), "wrong field": doUpdate(map[string]any{"query": 7})} {
			t.Run(name, func(t *testing.T) {
				sender := "t42 " + name
				wantSame(t, "what the model read", a.read(t, sender, "garden", plan{"knowledge_query": step}), noSearch)
				wantSame(t, "hooks asked", knowledgeHooks(a, sender), bothPoints[:2])
				wantNone(t, "a request", inJSON(a.Prompts(sender)), "planted-exception-text", "garden.")
				if bot := a.Of(sender, "bot"); len(bot) != 1 || bot[0].Text != "ok" { // the turn went on
					t.Errorf("bot events: %+v", bot)
				}
			})
		}
	})

	t.Run("T43 a results hook that fails leaves the passages as retrieved", func(t *testing.T) {
		passages := func(v any) any { return doUpdate(map[string]any{"passages": v}) }
		want := a.read(t, "t43", "garden", nil)
		for name, step := range map[string]any{
			"crash": doCrash("planted-exception-text"), "timeout": doSleep(), "wrong return": doReturn(nil),
			"no list": passages("text"), "no passages": passages(nil), "a list of texts": passages([]any{"text"}), "no text": passages([]any{map[string]any{"source": "x"}}),
			"text is no text": passages([]any{map[string]any{"text": 7}}), "text is None": passages([]any{map[string]any{"text": nil}}),
			"one of two": passages([]any{map[string]any{"text": "good"}, map[string]any{}}),
		} {
			t.Run(name, func(t *testing.T) {
				wantSame(t, "what the model read", a.read(t, "t43 "+name, "garden", plan{"knowledge_results": step}), want)
			})
		}
	})

	t.Run("T45 the payloads", func(t *testing.T) {
		a.read(t, "t45", "garden", plan{"knowledge_query": doUpdate(map[string]any{"query": "the garden"})})
		query := a.notes("t45", "modify knowledge_query")[0].Data
		results := a.notes("t45", "modify knowledge_results")[0].Data
		for _, d := range []map[string]any{query, results} {
			wantSame(t, "sender and call", []any{d["sender_id"], d["call"], d["channel"].(map[string]any)["name"]}, []any{"t45", map[string]any{}, "test"})
			delete(d, "sender_id")
			delete(d, "call")
			delete(d, "channel")
		}
		wantSame(t, "the query's payload", query, map[string]any{"query": "garden"})
		passage := results["passages"].([]any)[0].(map[string]any)
		score, scored := passage["score"].(float64)
		if !scored || score <= 0 || score > 1 {
			t.Errorf("the score is %v", passage["score"])
		}
		passage["score"] = 1
		wantSame(t, "the results' payload", results, map[string]any{"query": "the garden", "passages": []any{map[string]any{
			"text": "Dogs\n\nA dog may stay in the garden.", "scope": "project", "source": "references/dogs.md#dogs", "score": 1}}})
	})

	t.Run("T45 the query is read-only once there are results", func(t *testing.T) {
		read := a.read(t, "t45r", "garden", plan{"knowledge_results": doUpdate(map[string]any{"query": "stable", "passages": []any{map[string]any{"text": "Mine."}}})})
		wantSame(t, "what the model read", read, "[1]\nMine.")
		wantAll(t, "the trace", a.TraceText("t45r"), `"put_back":["query"]`)
	})

	t.Run("T46 each hook sees what the one before left", func(t *testing.T) {
		a.Next("t46", apptest.Calls(apptest.C{Name: "first"}, apptest.C{Name: "search_knowledge", Args: map[string]any{"query": "as called"}}, apptest.C{Name: "second"}))
		a.say(t, "t46", "tell me", plan{
			"tool_call search_knowledge":   doUpdate(map[string]any{"arguments": map[string]any{"query": "stable"}}),
			"knowledge_query":              doUpdate(map[string]any{"query": "garden"}),
			"knowledge_results":            doUpdate(map[string]any{"passages": []any{map[string]any{"text": "Dogs only."}}}),
			"tool_result search_knowledge": doUpdate(map[string]any{"value": "Nothing."}),
		})
		wantSame(t, "what ran", a.noted("t46", "modify tool_call", "modify knowledge", "modify tool_result", "tool "), []string{
			"modify tool_call first", "modify tool_call search_knowledge", "modify tool_call second",
			"tool first", "modify tool_result first",
			"modify knowledge_query", "modify knowledge_results", "modify tool_result search_knowledge",
			"tool second", "modify tool_result second"})
		result := a.notes("t46", "modify tool_result search")[0].Data
		wantSame(t, "what each was shown", []any{
			a.notes("t46", "modify tool_call search")[0].Data["arguments"], a.notes("t46", "modify knowledge_query")[0].Data["query"],
			a.notes("t46", "modify knowledge_results")[0].Data["query"], result["value"], result["arguments"]},
			[]any{map[string]any{"query": "as called"}, "stable", "garden", "[1]\nDogs only.", map[string]any{"query": "stable"}})
		wantSame(t, "what the model read", toolMessages(a.prompt(t, "t46", -1))[1], "Nothing.")
	})

	t.Run("T47 a query that a hook leaves empty or blank is not searched", func(t *testing.T) {
		for name, query := range map[string]string{"empty": "", "blank": " \t\n"} {
			t.Run(name, func(t *testing.T) {
				sender := "t47 " + name
				wantSame(t, "what the model read", a.read(t, sender, "garden", plan{"knowledge_query": doUpdate(map[string]any{"query": query})}), noQuery)
				wantSame(t, "hooks asked", knowledgeHooks(a, sender), bothPoints[:2])
			})
		}
	})

	t.Run("T48 results hooks are asked with an empty list when nothing was found", func(t *testing.T) {
		wantSame(t, "what the model read", a.read(t, "t48", "xylophone", nil), noneText)
		wantSame(t, "hooks asked", knowledgeHooks(a, "t48"), bothPoints)
		wantSame(t, "the passages", a.notes("t48", "modify knowledge_results")[0].Data["passages"], []any{})
		read := a.read(t, "t48a", "xylophone", plan{"knowledge_results": doUpdate(map[string]any{"passages": []any{map[string]any{"text": "Ask us."}}})})
		wantSame(t, "what the model read", read, "[1]\nAsk us.")
	})

	t.Run("T107 the latch follows the calls as the hooks left them", func(t *testing.T) {
		const latch = "The reference documents were searched in this turn."
		call := func(names ...string) []any {
			var out []any
			for _, n := range names {
				out = append(out, map[string]any{"tool_name": n, "tool_args": map[string]any{"query": "garden"}})
			}
			return out
		}
		simple := func(c string) any {
			return doUpdate(map[string]any{"tool_name": c, "arguments": map[string]any{"query": "garden"}})
		}
		for name, c := range map[string]struct {
			answer  apptest.Answer
			plan    plan
			latched bool
		}{
			"nothing changed":                       {searches("garden"), nil, true},
			"no search":                             {apptest.Call("first", nil), nil, false},
			"a text becomes a search":               {apptest.Says("Hm."), plan{"model_response": doUpdate(map[string]any{"text": nil, "tool_calls": call("search_knowledge")})}, true},
			"a search is dropped from the response": {apptest.Calls(apptest.C{Name: "search_knowledge", Args: map[string]any{"query": "x"}}, apptest.C{Name: "first"}), plan{"model_response": doUpdate(map[string]any{"tool_calls": []any{map[string]any{"tool_name": "first", "tool_args": map[string]any{}}}})}, false},
			"a call becomes a search":               {apptest.Call("first", nil), plan{"tool_call first": simple("search_knowledge")}, true},
			"a search becomes another call":         {searches("garden"), plan{"tool_call search_knowledge": doUpdate(map[string]any{"tool_name": "first", "arguments": map[string]any{}})}, false},
			"a batch that is discarded":             {searches("garden"), plan{"tool_call search_knowledge": doRetry("No.")}, false},
		} {
			t.Run(name, func(t *testing.T) {
				sender := "t107 " + name
				a.Next(sender, c.answer, apptest.Call("second", nil))
				a.say(t, sender, "tell me", c.plan)
				prompts := a.Prompts(sender)
				if len(prompts) != 3 {
					t.Fatalf("%d requests", len(prompts))
				}
				for i, want := range []bool{false, c.latched, c.latched} {
					if got := strings.Contains(prompts[i][0]["content"].(string), latch); got != want {
						t.Errorf("request %d says that a search was made: %v, want %v", i, got, want)
					}
				}
				a.say(t, sender, "and now", nil)
				if last := a.prompt(t, sender, -1)[0]["content"].(string); strings.Contains(last, latch) {
					t.Error("the next turn says that a search was made")
				}
			})
		}
	})
}

// Without an index and with one that fails, the model gets its notes, whether hooks
// stand there or not.
func TestKnowledgeWithoutResults(t *testing.T) {
	t.Parallel()
	empty := apptest.Files{"tools/simple.py": simpleTools, "references/readme.txt": "no reference"}
	agents := map[string]planned{
		"missing":        startPlanned(t, empty),
		"missing, plain": startPlanned(t, plainly(empty)),
		"failing":        startPlanned(t, references, brokenSearch),
		"failing, plain": startPlanned(t, plainly(references), brokenSearch),
	}
	for name, c := range map[string]struct{ missing, query, want string }{
		"missing index":     {"missing", "garden", noIndex},
		"failing retrieval": {"failing", "garden", noSearch},
		"empty query":       {"missing", " ", noQuery},
		"empty query, too":  {"failing", "", noQuery},
	} {
		t.Run("T44 "+name, func(t *testing.T) {
			wantSame(t, "with hooks", agents[c.missing].read(t, "t44 "+name, c.query, nil), c.want)
			wantSame(t, "without", agents[c.missing+", plain"].read(t, "t44 "+name, c.query, nil), c.want)
			if c.query == "garden" {
				changed := plan{"knowledge_query": doUpdate(map[string]any{"query": "stable"})}
				wantSame(t, "with a hook that changes the query", agents[c.missing].read(t, "t44 changed "+name, c.query, changed), c.want)
			}
		})
	}

	t.Run("T42 the note is that of a failing retrieval", func(t *testing.T) {
		failing := agents["failing"].read(t, "t42", "garden", nil)
		skipped := agents["missing"].read(t, "t42", "garden", plan{"knowledge_query": doCrash("no")})
		wantSame(t, "what the model read", skipped, failing)
		wantSame(t, "whether it counts as failed", agents["missing"].runs("t42")[0].IsError, agents["failing"].runs("t42")[0].IsError)
	})

	t.Run("T48 query hooks are asked although the index is missing, results hooks are not", func(t *testing.T) {
		agents["missing"].read(t, "t48", "garden", nil)
		wantSame(t, "hooks asked", knowledgeHooks(agents["missing"], "t48"), bothPoints[:2])
	})

	t.Run("T48 results hooks are not asked when the search failed", func(t *testing.T) {
		agents["failing"].read(t, "t48", "garden", nil)
		wantSame(t, "hooks asked", knowledgeHooks(agents["failing"], "t48"), bothPoints[:2])
	})
}

// plainly is the agent without hooks.
func plainly(files apptest.Files) apptest.Files {
	files = maps.Clone(files)
	files["hooks.py"] = ""
	return files
}
