package convtest

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The search library starts its workers when it is imported and never ends them.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker"))
}
