package mcphost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Tool is a function that a server offers.
type Tool struct {
	Name         string          `json:"name"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema,omitempty"`  // a JSON schema
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"` // nil when it has none
	Annotations  Annotations     `json:"annotations"`
}

// Annotations is what a function declares of itself; nil where it declares nothing.
type Annotations struct {
	ReadOnly    *bool `json:"readOnlyHint,omitempty"`
	Destructive *bool `json:"destructiveHint,omitempty"`
	Idempotent  *bool `json:"idempotentHint,omitempty"`
	OpenWorld   *bool `json:"openWorldHint,omitempty"`
}

// pagesMost bounds a list of tools that never ends.
const pagesMost = 1000

// Tools asks the server for its functions, starting it if need be.
func (s *Server) Tools(ctx context.Context) ([]Tool, error) {
	starting := time.NewTimer(s.cfg.StartTimeout)
	defer starting.Stop()
	for try := 0; ; try++ {
		sess, err := s.ready(ctx, starting.C)
		if err != nil {
			return nil, err
		}
		all, err := s.list(ctx, sess)
		if err == nil {
			return all, nil
		}
		if try > 0 || !sess.isLost() || ctx.Err() != nil {
			return nil, fmt.Errorf("server %q cannot list its tools: %w", s.cfg.ID, err)
		}
	}
}

func (s *Server) list(ctx context.Context, sess *session) ([]Tool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	defer context.AfterFunc(sess.ctx, cancel)()
	var all []Tool
	seen, cursors := map[string]bool{}, map[string]bool{}
	cursor := ""
	for range pagesMost {
		page, err := s.page(ctx, sess, cursor)
		if err != nil {
			return nil, err
		}
		for _, raw := range page.Tools {
			t, err := readTool(raw)
			switch {
			case err != nil:
				s.log.Warn("mcp server lists a tool that cannot be read", "error", err)
			case seen[t.Name]:
				s.log.Warn("mcp server lists a tool twice; the first counts", "tool", t.Name)
			default:
				seen[t.Name] = true
				all = append(all, t)
			}
		}
		if page.NextCursor == "" {
			return all, nil
		}
		if cursors[page.NextCursor] {
			return nil, errors.New("its list goes in circles")
		}
		cursor = page.NextCursor
		cursors[cursor] = true
	}
	return nil, fmt.Errorf("its list has more than %d pages", pagesMost)
}

type toolPage struct {
	Tools      []json.RawMessage `json:"tools"`
	NextCursor string            `json:"nextCursor"`
}

// page asks for one page of the list.
func (s *Server) page(ctx context.Context, sess *session, cursor string) (page toolPage, _ error) {
	p := &pending{done: make(chan struct{})}
	untrack := sess.track(p)
	defer untrack()
	list, err := sess.ListTools(withPending(ctx, p), &mcp.ListToolsParams{Cursor: cursor})
	r := p.reply()
	raw := r.result
	switch {
	case r.refusal != nil:
		return page, errors.New(refusalWords(r.refusal, s.shortened))
	case r.answered:
	case err == nil: // the SDK had the list still
		if raw, err = json.Marshal(list); err != nil {
			return page, err
		}
	case r.failure != nil:
		return page, r.failure
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return page, fmt.Errorf("no answer within %s", s.cfg.StartTimeout)
	case ctx.Err() != nil && sess.ctx.Err() == nil:
		return page, ctx.Err()
	default:
		return page, fmt.Errorf("it %s", sess.loss(err))
	}
	if err := json.Unmarshal(raw, &page); err != nil {
		return page, errors.New("its answer is no list of tools")
	}
	return page, nil
}

// readTool reads one entry of the list. An annotation that is neither true nor
// false counts as not there, which is the careful way.
func readTool(raw json.RawMessage) (Tool, error) {
	var w struct {
		Name         string                     `json:"name"`
		Title        string                     `json:"title"`
		Description  string                     `json:"description"`
		InputSchema  json.RawMessage            `json:"inputSchema"`
		OutputSchema json.RawMessage            `json:"outputSchema"`
		Annotations  map[string]json.RawMessage `json:"annotations"`
	}
	if err := json.Unmarshal(raw, &w); err != nil {
		return Tool{}, err
	}
	if w.Name == "" {
		return Tool{}, errors.New("it has no name")
	}
	t := Tool{Name: w.Name, Title: w.Title, Description: w.Description, InputSchema: w.InputSchema}
	if len(w.OutputSchema) > 0 && string(w.OutputSchema) != "null" {
		t.OutputSchema = w.OutputSchema
	}
	hint := func(name string) (b *bool) {
		if json.Unmarshal(w.Annotations[name], &b) != nil {
			return nil
		}
		return b
	}
	t.Annotations = Annotations{
		ReadOnly:    hint("readOnlyHint"),
		Destructive: hint("destructiveHint"),
		Idempotent:  hint("idempotentHint"),
		OpenWorld:   hint("openWorldHint"),
	}
	return t, nil
}
