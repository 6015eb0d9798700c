package knowledge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/knowledge"
)

func TestMain(m *testing.M) {
	// The search library starts its analysis workers once, for the whole process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker"))
}

// folder writes files, given as name and text in turn, and returns the folder and
// the names.
func folder(t testing.TB, files ...string) (string, []string) {
	t.Helper()
	dir := t.TempDir()
	var names []string
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[i+1]), 0o644); err != nil {
			t.Fatal(err)
		}
		names = append(names, files[i])
	}
	return dir, names
}

func open(t testing.TB, language string, files ...string) *knowledge.Index {
	t.Helper()
	dir, names := folder(t, files...)
	x, findings := knowledge.Open(dir, names, language)
	if x == nil || len(findings) > 0 {
		t.Fatalf("no index: %+v", findings)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

func search(t testing.TB, x *knowledge.Index, question string, k int) []knowledge.Passage {
	t.Helper()
	found, err := x.Search(t.Context(), question, k)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var clinic = []string{
	"references/opening-hours.md", "# Opening hours\n\nWe open at eight.\n\n## Sunday\n\nOn Sundays the clinic is closed.\n\n## Holidays\n\nClosed on public holidays.\n",
	"references/prices.md", "# Prices\n\nA first visit costs 60 euros. Later visits cost 40 euros.\n\n## Payment\n\nPay by card or in cash.\n",
	"references/preparing.md", "# Preparing\n\nBring your insurance card and a list of your medicines.\n",
}

func TestSearch(t *testing.T) {
	x := open(t, "en", clinic...)
	tests := []struct{ question, source, contains string }{
		{"Are you open on Sunday?", "references/opening-hours.md#sunday", "Opening hours > Sunday\n\nOn Sundays the clinic is closed."},
		{"How much does a first visit cost?", "references/prices.md#prices", "60 euros"},
		{"can I pay in cash", "references/prices.md#payment", "in cash"},
		{"which medicine should I bring", "references/preparing.md#preparing", "medicines"},
		{"HOLIDAY", "references/opening-hours.md#holidays", "public holidays"},
	}
	for _, tt := range tests {
		found := search(t, x, tt.question, 3)
		if len(found) == 0 || found[0].Source != tt.source || !strings.Contains(found[0].Text, tt.contains) || found[0].Scope != "project" {
			t.Errorf("%q: %+v", tt.question, found)
			continue
		}
		if found[0].Score <= 0.2 || found[0].Score > 1 {
			t.Errorf("%q: score %v", tt.question, found[0].Score)
		}
	}
}

func TestScores(t *testing.T) {
	x := open(t, "en", clinic...)
	if found := search(t, x, "closed on Sunday", 1); len(found) != 1 || found[0].Score != 1 {
		t.Errorf("a passage with every word: %+v", found)
	}
	weak := search(t, x, "which card games can children play outside in summer", 5)
	for _, p := range weak {
		if p.Score > 0.3 {
			t.Errorf("a passage with one common word scores %v: %+v", p.Score, p)
		}
	}
	if found := search(t, x, "quantum chromodynamics", 5); len(found) != 0 {
		t.Errorf("found %+v", found)
	}
	all := search(t, x, "card visit closed", 10)
	if !slices.IsSortedFunc(all, func(a, b knowledge.Passage) int {
		switch {
		case a.Score > b.Score:
			return -1
		case a.Score < b.Score:
			return 1
		}
		return 0
	}) {
		t.Errorf("not sorted by score: %+v", all)
	}
	if got := search(t, x, "card visit closed", 2); len(got) != 2 {
		t.Errorf("%d passages, want 2", len(got))
	}
	raw, err := json.Marshal(all[0])
	if err != nil || !strings.HasPrefix(string(raw), `{"text":`) || !strings.Contains(string(raw), `"scope":"project","source":"references/`) {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestAQuestionHasNoSyntax(t *testing.T) {
	x := open(t, "en", clinic...)
	for _, q := range []string{
		"", "   ", "the", "+", "-", "+sunday", "text:sunday", `"sunday`, "sun*", "/[/", "(((", "~2", "sunday^", "\x00", "\xff\xfe sunday", "AND OR NOT", "?*", "\\", "{]}", "<script>",
		strings.Repeat("sunday ", 100_000), strings.Repeat("é", 5000), strings.Repeat("word1 ", 10) + "日曜日", "🙂", "a\nb\tc",
	} {
		if _, err := x.Search(t.Context(), q, 5); err != nil {
			t.Errorf("%.30q: %v", q, err)
		}
	}
	for _, q := range []string{"+sunday -closed", "text: sunday", `"sunday`, "sunday?*~", "\xff\xfe sunday"} {
		if len(search(t, x, q, 5)) == 0 {
			t.Errorf("%q finds nothing", q)
		}
	}
	if found := search(t, x, "sunday", 0); len(found) != 0 {
		t.Errorf("k = 0 finds %v", found)
	}
}

func TestLanguages(t *testing.T) {
	tests := []struct{ language, text, question string }{
		{"de", "# Öffnungszeiten\n\nDie Praxis hat sonntags geschlossen. Termine vergeben wir telefonisch.\n", "Gibt es einen Termin?"},
		{"de-AT", "# Häuser\n\nWir verwalten Häuser.\n", "haus"},
		{"es", "# Horario\n\nLos domingos la clínica está cerrada.\n", "¿abren el domingo?"},
		{"fr", "# Horaires\n\nLe cabinet est fermé le dimanche.\n", "dimanches"},
		{"sv", "# Öppettider\n\nVi har stängt på söndag.\n", "SÖNDAG"},
		{"zh", "# 营业时间\n\n星期天休息。\n", "星期天"},
		{"", "# Hours\n\nClosed on Sunday.\n", "sunday"},
	}
	for _, tt := range tests {
		x := open(t, tt.language, "references/a.md", tt.text)
		if len(search(t, x, tt.question, 1)) != 1 {
			t.Errorf("%s: %q finds nothing", tt.language, tt.question)
		}
	}
}

func TestNothingToSearch(t *testing.T) {
	dir := t.TempDir()
	if x, findings := knowledge.Open(dir, nil, "en"); x != nil || findings != nil {
		t.Errorf("%v, %v", x, findings)
	}
	dir, names := folder(t, "references/empty.md", "", "references/blank.md", " \n\n")
	if x, findings := knowledge.Open(dir, names, "en"); x != nil || findings != nil {
		t.Errorf("%v, %v", x, findings)
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	dir, names := folder(t,
		"references/good.md", "# Good\n\nGood words.\n",
		"references/large.md", strings.Repeat("x ", 1<<20)+"y",
		"references/bytes.md", "\xff\xfe\x00",
	)
	outside := filepath.Join(t.TempDir(), "secret.md")
	if err := os.WriteFile(outside, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "references/link.md")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "references/pipe.md"), 0o644); err != nil {
		t.Fatal(err)
	}
	names = append(names, "references/link.md", "references/pipe.md", "references/gone.md", "../x.md")
	x, findings := knowledge.Open(dir, names, "en")
	if x == nil || x.Len() != 1 {
		t.Fatalf("the good file is not indexed: %+v", findings)
	}
	defer func() { _ = x.Close() }()
	described := map[string]bool{}
	for _, r := range knowledge.Rules() {
		described[r.ID] = true
	}
	var got []string
	for _, f := range findings {
		got = append(got, f.File+":"+f.Rule)
		if f.Severity != finding.Error || f.Hint == "" || !described[f.Rule] {
			t.Errorf("%+v", f)
		}
	}
	want := []string{"references/large.md:knowledge-too-large", "references/bytes.md:knowledge-encoding", "references/link.md:knowledge-unreadable",
		"references/pipe.md:knowledge-unreadable", "references/gone.md:knowledge-unreadable", "../x.md:knowledge-unreadable"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestManyAtOnceAndCancelled(t *testing.T) {
	x := open(t, "en", clinic...)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if found, err := x.Search(t.Context(), "closed on Sunday", 3); err != nil || len(found) == 0 {
				t.Errorf("%v, %v", found, err)
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Search(ctx, "closed on Sunday", 3); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("indexes 0.6 MB")
	}
	var files []string
	words := strings.Fields("clinic visit doctor nurse price euro card insurance medicine hour sunday holiday payment letter report result blood test vaccine travel child adult parent form")
	for i := range 6 {
		var b strings.Builder
		for s := range 40 {
			fmt.Fprintf(&b, "## Section %d of %d\n\n", s, i)
			for w := range 350 {
				fmt.Fprintf(&b, "%s%d ", words[(w*7+s+i)%len(words)], (w*s+i)%97)
			}
			b.WriteString("\n\n")
		}
		files = append(files, fmt.Sprintf("references/f%d.md", i), b.String())
	}
	before := heap()
	x := open(t, "en", files...)
	grown := heap() - before
	t.Logf("%d passages of 0.6 MB text: %.1f MB of heap", x.Len(), float64(grown)/1e6)
	if grown > 12<<20 {
		t.Errorf("the index takes %d bytes", grown)
	}
	runtime.KeepAlive(x)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func FuzzSearch(f *testing.F) {
	f.Add("# A\n\ntext here", "text")
	f.Add("```\n# no\n```\nA\n===\n\nb", "+(")
	f.Fuzz(func(t *testing.T, text, question string) {
		dir, names := folder(t, "references/a.md", text)
		x, findings := knowledge.Open(dir, names, "en")
		if x == nil {
			if len(findings) == 0 && strings.TrimFunc(text, func(r rune) bool { return r < 'A' }) != "" && !strings.HasPrefix(text, "---") && utf8.ValidString(text) && strings.TrimSpace(strings.Trim(text, "#= \n\t")) != "" {
				t.Logf("nothing to search in %q", text)
			}
			return
		}
		defer func() {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}()
		found, err := x.Search(t.Context(), question, 5)
		if err != nil {
			t.Error(err)
		}
		for _, p := range found {
			if p.Score < 0 || p.Score > 1 || p.Text == "" || p.Source == "" {
				t.Errorf("%+v", p)
			}
		}
	})
}

func BenchmarkSearch(b *testing.B) {
	x := open(b, "en", clinic...)
	for b.Loop() {
		if _, err := x.Search(b.Context(), "How much does a first visit cost on Sunday?", 5); err != nil {
			b.Fatal(err)
		}
	}
}

func TestSearchKeepsToScopes(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		"references/fees.md":             "# Fees\n\nA transfer costs nothing.",
		"skills/cards/references/a.md":   "# Cards\n\nA new card costs five euros.",
		"skills/savings/references/b.md": "# Savings\n\nA savings account costs nothing.",
	}
	var names []string
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	x, findings := knowledge.Open(dir, names, "en")
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	defer func() { _ = x.Close() }()
	for _, tt := range []struct {
		scopes []string
		want   []string
	}{
		{nil, []string{"cards", "project", "savings"}},
		{[]string{knowledge.Project, "cards"}, []string{"cards", "project"}},
		{[]string{"savings"}, []string{"savings"}},
		{[]string{"nobody"}, nil},
	} {
		found, err := x.Search(context.Background(), "what does it cost", 5, tt.scopes...)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range found {
			got = append(got, p.Scope)
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("scopes %v: passages of %v, want %v", tt.scopes, got, tt.want)
		}
	}
}
