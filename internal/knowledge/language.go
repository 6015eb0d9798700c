package knowledge

import (
	"strings"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis/analyzer/custom"
	"github.com/blevesearch/bleve/v2/analysis/lang/cjk"
	"github.com/blevesearch/bleve/v2/analysis/lang/de"
	"github.com/blevesearch/bleve/v2/analysis/lang/en"
	"github.com/blevesearch/bleve/v2/analysis/lang/es"
	"github.com/blevesearch/bleve/v2/analysis/lang/fr"
	"github.com/blevesearch/bleve/v2/analysis/lang/it"
	"github.com/blevesearch/bleve/v2/analysis/lang/nl"
	"github.com/blevesearch/bleve/v2/analysis/lang/pt"
	"github.com/blevesearch/bleve/v2/analysis/token/lowercase"
	"github.com/blevesearch/bleve/v2/analysis/tokenizer/unicode"
	"github.com/blevesearch/bleve/v2/mapping"
	index "github.com/blevesearch/bleve_index_api"
)

// analyzers stem words and drop those that say nothing.
var analyzers = map[string]string{
	"de": de.AnalyzerName, "en": en.AnalyzerName, "es": es.AnalyzerName, "fr": fr.AnalyzerName, "it": it.AnalyzerName,
	"nl": nl.AnalyzerName, "pt": pt.AnalyzerName, "ja": cjk.AnalyzerName, "ko": cjk.AnalyzerName, "zh": cjk.AnalyzerName,
}

// plain is for the other languages: whole words, case apart.
const plain = "plain"

// mappingFor returns how passages of a language are indexed, and the analyzer's
// name.
func mappingFor(language string) (*mapping.IndexMappingImpl, string, error) {
	primary, _, _ := strings.Cut(strings.ReplaceAll(strings.ToLower(language), "_", "-"), "-")
	name, ok := analyzers[primary]
	m := bleve.NewIndexMapping()
	if !ok {
		name = plain
		err := m.AddCustomAnalyzer(plain, map[string]any{
			"type": custom.Name, "tokenizer": unicode.Name, "token_filters": []string{lowercase.Name},
		})
		if err != nil {
			return nil, "", err
		}
	}
	text := bleve.NewTextFieldMapping()
	text.Analyzer = name
	text.Store = false // the passages are kept beside the index
	text.DocValues = false
	text.IncludeInAll = false
	passage := bleve.NewDocumentStaticMapping()
	passage.AddFieldMappingsAt(body, text)
	passage.AddFieldMappingsAt(heading, text)
	scope := bleve.NewKeywordFieldMapping()
	scope.Store, scope.DocValues, scope.IncludeInAll = false, false, false
	passage.AddFieldMappingsAt(scoped, scope)
	m.DefaultMapping = passage
	m.DefaultAnalyzer = name
	m.ScoringModel = index.BM25Scoring
	return m, name, m.Validate()
}
