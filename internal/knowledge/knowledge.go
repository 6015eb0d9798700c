// Package knowledge searches an agent's references, the Markdown files under
// references/.
//
//	index, findings := knowledge.Open(a.Dir, a.KnowledgeFiles, a.Language)
//	…
//	passages, err := index.Search(ctx, "when are you open on Sunday?", 5)
//
// Files are cut at their headings, and long sections between paragraphs, into
// passages of about 1,200 characters. A passage begins with the headings above it
// and names its source as file#heading.
//
// # Scores
//
// A passage's score is the share of the question's words that it contains, itself
// or in the headings above it, where rarer words weigh more: 1 means every word,
// 0.5 means about half of what the question is about. Words are compared by their
// stem in the agent's language, and words such as "the" or "is" do not count. The
// score depends on the question and the passage, not on what else was found, so a
// threshold means the same for every question: below about 0.2 a passage shares
// one common word or so with the question. Passages with equal scores are ordered
// by BM25.
//
// A question is never a syntax error: it has no syntax.
package knowledge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis"
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/search/query"

	"github.com/belay-run/belay/internal/finding"
)

// Passage is a piece of a reference.
type Passage struct {
	Text   string  `json:"text"`
	Scope  string  `json:"scope"`  // whose references it is from: "project", or a skill's id
	Source string  `json:"source"` // file, relative to the agent's folder, and "#" with its heading
	Score  float64 `json:"score"`  // from 0 to 1; see the package comment
}

// Project is the scope of the references at the agent's root.
const Project = "project"

const (
	maxWords   = 64   // of a question; the rest is not looked for
	maxQuery   = 4000 // bytes of a question that are read
	candidates = 100  // passages that are scored
)

// Index is the references of one agent, in memory. It may be used from many
// goroutines.
type Index struct {
	index    bleve.Index
	analyzer analysis.Analyzer
	passages []Passage
}

// Open reads files, which are relative to dir, and indexes them for a language,
// such as "de". The index is nil when there is nothing to search; the findings
// say which files could not be read. The caller closes the index.
func Open(dir string, files []string, language string) (*Index, []finding.Finding) {
	pieces, findings := load(dir, files)
	if len(pieces) == 0 {
		return nil, findings
	}
	x, err := build(pieces, language)
	if err != nil {
		return nil, append(findings, finding.Finding{
			File: Folder, Rule: "knowledge-index", Severity: finding.Error,
			Message: "the references cannot be indexed: " + err.Error(), Hint: "this is not the author's fault; please report it",
		})
	}
	return x, findings
}

// The fields of an indexed passage.
const (
	body    = "text"
	heading = "heading"
	scoped  = "scope"
)

// scopeOf tells the references of a skill, skills/<id>/references/…, from the
// project's.
func scopeOf(source string) string {
	if rest, ok := strings.CutPrefix(source, "skills/"); ok {
		id, _, _ := strings.Cut(rest, "/")
		return id
	}
	return Project
}

func build(pieces []piece, language string) (*Index, error) {
	m, name, err := mappingFor(language)
	if err != nil {
		return nil, err
	}
	// An empty path keeps it in memory, in compressed segments.
	index, err := bleve.NewUsing("", m, scorch.Name, scorch.Name, nil)
	if err != nil {
		return nil, fmt.Errorf("make an index: %w", err)
	}
	x := &Index{index: index, analyzer: m.AnalyzerNamed(name), passages: make([]Passage, 0, len(pieces))}
	batch := index.NewBatch()
	for i, p := range pieces {
		scope := scopeOf(p.source)
		if err := batch.Index(strconv.Itoa(i), map[string]any{body: p.body, heading: p.heading, scoped: scope}); err != nil {
			return nil, errors.Join(fmt.Errorf("index %s: %w", p.source, err), index.Close())
		}
		x.passages = append(x.passages, Passage{Text: p.text(), Scope: scope, Source: p.source})
		if batch.Size() < 500 && i+1 < len(pieces) {
			continue
		}
		if err := index.Batch(batch); err != nil {
			return nil, errors.Join(fmt.Errorf("index the references: %w", err), index.Close())
		}
		batch.Reset()
	}
	return x, nil
}

// within keeps a query to the scopes.
func within(q query.Query, scopes []string) query.Query {
	if len(scopes) == 0 {
		return q
	}
	var in []query.Query
	for _, s := range scopes {
		term := bleve.NewTermQuery(s)
		term.SetField(scoped)
		term.SetBoost(0)
		in = append(in, term)
	}
	return bleve.NewConjunctionQuery(q, bleve.NewDisjunctionQuery(in...))
}

// Len returns the number of passages.
func (x *Index) Len() int { return len(x.passages) }

// Close lets go of the index.
func (x *Index) Close() error { return x.index.Close() }

// Search returns the k passages that fit a question best, the best first; none
// when no word of it is anywhere. With scopes only passages of these are looked
// at.
func (x *Index) Search(ctx context.Context, question string, k int, scopes ...string) ([]Passage, error) {
	words := x.words(question)
	if len(words) == 0 || k <= 0 {
		return nil, nil
	}
	var any []query.Query
	for _, w := range words {
		inBody, inHeading := bleve.NewTermQuery(w), bleve.NewTermQuery(w)
		inBody.SetField(body)
		inHeading.SetField(heading)
		inHeading.SetBoost(1.5)
		any = append(any, inBody, inHeading)
	}
	request := bleve.NewSearchRequestOptions(within(bleve.NewDisjunctionQuery(any...), scopes), max(candidates, k), 0, false)
	request.IncludeLocations = true // they say which words were found
	result, err := x.index.SearchInContext(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("search the references: %w", err)
	}
	weights, whole, err := x.weigh(words)
	if err != nil {
		return nil, err
	}
	type hit struct {
		Passage
		rank float64
	}
	hits := make([]hit, 0, len(result.Hits))
	for _, h := range result.Hits {
		i, err := strconv.Atoi(h.ID)
		if err != nil || i < 0 || i >= len(x.passages) {
			return nil, fmt.Errorf("search the references: the index names a passage %q that is not there", h.ID)
		}
		p := x.passages[i]
		for _, w := range words {
			if len(h.Locations[body][w]) > 0 || len(h.Locations[heading][w]) > 0 {
				p.Score += weights[w]
			}
		}
		p.Score = math.Round(p.Score/whole*1000) / 1000
		hits = append(hits, hit{p, h.Score})
	}
	slices.SortStableFunc(hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(b.rank, a.rank), cmp.Compare(a.Source, b.Source))
	})
	out := make([]Passage, 0, min(k, len(hits)))
	for _, h := range hits[:min(k, len(hits))] {
		out = append(out, h.Passage)
	}
	return out, nil
}

// words cuts a question into the stems that are looked for.
func (x *Index) words(question string) []string {
	if len(question) > maxQuery {
		question = question[:maxQuery]
	}
	question = strings.ToValidUTF8(question, " ") // the tokenizer stops at other bytes
	var out []string
	for _, t := range x.analyzer.Analyze([]byte(question)) {
		w := string(t.Term)
		if w == "" || slices.Contains(out, w) {
			continue
		}
		if out = append(out, w); len(out) == maxWords {
			break
		}
	}
	return out
}

// weigh says how much each word counts: more when fewer passages have it. A word
// that no passage has counts like one that a single passage has, so that a
// "please" does not outweigh the rest.
func (x *Index) weigh(words []string) (map[string]float64, float64, error) {
	n := float64(len(x.passages))
	weights, whole := make(map[string]float64, len(words)), 0.0
	for _, w := range words {
		var with uint64
		for _, field := range []string{body, heading} {
			count, err := x.frequency(field, w)
			if err != nil {
				return nil, 0, fmt.Errorf("search the references: %w", err)
			}
			with = max(with, count)
		}
		df := max(float64(with), 1)
		weights[w] = math.Log(1 + (n-df+0.5)/(df+0.5))
		whole += weights[w]
	}
	return weights, whole, nil
}

// frequency says in how many passages a word stands.
func (x *Index) frequency(field, word string) (uint64, error) {
	dict, err := x.index.FieldDictRange(field, []byte(word), []byte(word))
	if err != nil {
		return 0, err
	}
	entry, err := dict.Next()
	if err != nil || entry == nil || entry.Term != word {
		return 0, errors.Join(err, dict.Close())
	}
	return entry.Count, dict.Close()
}
