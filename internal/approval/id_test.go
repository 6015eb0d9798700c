package approval_test

import (
	"regexp"
	"testing"

	"github.com/belay-run/belay/internal/approval"
)

func TestIDsAreShortAndTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, in := range [][3]string{
		{"main", "job-1", "3/call_7/ask"}, {"main", "job-1", "3/call_8/ask"}, {"main", "job-2", "3/call_7/ask"}, {"other", "job-1", "3/call_7/ask"},
		{"mainj", "ob-1", "3/call_7/ask"}, {"main", "job-13", "/call_7/ask"},
	} {
		id := approval.ID(in[0], in[1], in[2])
		if !regexp.MustCompile(`^[a-z2-7]{12}$`).MatchString(id) || seen[id] || id != approval.ID(in[0], in[1], in[2]) {
			t.Errorf("%v: %s", in, id)
		}
		seen[id] = true
	}
	if got := approval.ID("main", "job-1", "3/call_7/ask"); got != "umdfafowkffi" {
		t.Errorf("the id is %s by now: links that were sent lead nowhere", got)
	}
}
