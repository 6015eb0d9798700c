package expect_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belay-run/belay/internal/expect"
)

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{"small": 3, "most": expect.MaxFile, "large": expect.MaxFile + 1} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, bytes.Repeat([]byte("x"), size), 0o600); err != nil {
			t.Fatal(err)
		}
		data, err := expect.Load(path)
		if large := name == "large"; errors.Is(err, expect.ErrTooLarge) != large || !large && (err != nil || len(data) != size) {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
	for _, path := range []string{dir, filepath.Join(dir, "nowhere")} {
		if _, err := expect.Load(path); err == nil || strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestAFailureForPrograms(t *testing.T) {
	f := expect.Failure{What: "tools", Line: 3, Message: "a<b", Diff: []expect.DiffLine{{" ", "one"}, {"-", "two"}, {"+", "three"}}}
	var out bytes.Buffer
	if err := expect.WriteJSON(&out, []expect.Failure{f, {What: "status"}}); err != nil {
		t.Fatal(err)
	}
	const want = `[{"what":"tools","line":3,"message":"a<b","expected":["one","two"],"seen":["one","three"]},{"what":"status"}]`
	if got := strings.Join(strings.Fields(out.String()), ""); got != want {
		t.Errorf("got %s", got)
	}
}
