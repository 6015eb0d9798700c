package control

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belay-run/belay/internal/access"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/spend"
)

// Spending knows what models were asked and what that has cost.
type Spending interface {
	// ModelCalls gives the model calls of a job, with texts where they are recorded
	// and asked for. [job.ErrNoJob].
	ModelCalls(ctx context.Context, id job.ID, texts bool) (ModelCallList, error)
	// Spent says what a tenant and its agents have spent, beside their budgets.
	Spent(ctx context.Context, tenant string) (SpendReport, error)
}

// Amount is money: in JSON a decimal number of the currency's units, exactly.
type Amount spend.Money

// MarshalJSON implements [json.Marshaler].
func (a Amount) MarshalJSON() ([]byte, error) { return []byte(spend.Money(a).String()), nil }

// UnmarshalJSON implements [json.Unmarshaler].
func (a *Amount) UnmarshalJSON(raw []byte) error {
	m, err := spend.ParseMoney(string(raw))
	*a = Amount(m)
	return err
}

// Schema implements [huma.SchemaProvider].
func (Amount) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeNumber, Description: "In units of the currency, with six digits after the point at most."}
}

// How a model call stands.
const (
	CallEnded   = "ended"
	CallRuns    = "running"
	CallUnknown = "unknown" // its process ended under it
)

// ModelCall is a call of a model in a job.
type ModelCall struct {
	ID        string      `json:"id"`
	Agent     string      `json:"agent"`
	Plugin    string      `json:"plugin,omitempty" doc:"Whose tool made the call; left out, the agent itself."`
	Tool      string      `json:"tool,omitempty"`
	Function  string      `json:"function,omitempty"`
	Step      string      `json:"step,omitempty" doc:"The key of the job's step in which it was made."`
	Purpose   string      `json:"purpose,omitempty" doc:"As the plugin's manifest says it."`
	API       string      `json:"api,omitempty"`
	Route     string      `json:"route,omitempty"`
	Asked     string      `json:"asked,omitempty" doc:"The model as the call named it."`
	Provider  string      `json:"provider,omitempty"`
	Model     string      `json:"model,omitempty" doc:"The provider's name of it."`
	Stream    bool        `json:"stream,omitempty"`
	Began     time.Time   `json:"began"`
	Outcome   string      `json:"outcome" enum:"ended,running,unknown" doc:"Unknown when the process ended under the call: what was reserved counts as spent."`
	Status    int         `json:"status,omitempty" doc:"The HTTP status that the caller got."`
	Usage     spend.Usage `json:"usage"`
	Estimated bool        `json:"estimated,omitempty" doc:"The provider did not say how many tokens it took."`
	Cost      Amount      `json:"cost"`
	Priced    bool        `json:"priced" doc:"There was a price for the model; else the cost is 0."`
	Reserved  int64       `json:"reserved_tokens,omitempty" doc:"How many tokens count for a call that has not ended."`
	FirstByte int64       `json:"first_byte_ms,omitempty"`
	Took      int64       `json:"took_ms"`
	Why       string      `json:"why,omitempty" doc:"Why it was refused or failed."`
	Verdicts  []string    `json:"verdicts,omitempty" doc:"What the rules did to it."`
	Request   string      `json:"request,omitempty" doc:"Where texts are recorded, and only when asked for."`
	Answer    string      `json:"answer,omitempty" doc:"Likewise."`
}

// ModelCallList are the model calls of a job.
type ModelCallList struct {
	Currency string      `json:"currency"`
	Calls    []ModelCall `json:"calls" doc:"As they began."`
	// Incomplete says why calls may be missing.
	Incomplete string `json:"incomplete,omitempty" doc:"Why calls may be missing, such as a full disk."`
}

// SpendReport says what a tenant has spent.
type SpendReport struct {
	Tenant    string  `json:"tenant"`
	Currency  string  `json:"currency"`
	JobBudget *Budget `json:"job_budget,omitempty" doc:"What one job may spend."`
	Spent     []Spent `json:"spent" doc:"Of the tenant first, then of each agent that has spent something this month."`
}

// Spent is what was spent in the day or month that it is.
type Spent struct {
	Agent          string    `json:"agent,omitempty" doc:"Left out, the tenant as a whole."`
	Per            string    `json:"per" enum:"day,month"`
	Since          time.Time `json:"since"`
	Cost           Amount    `json:"cost"`
	Tokens         int64     `json:"tokens"`
	Reserved       Amount    `json:"reserved" doc:"By calls that run."`
	ReservedTokens int64     `json:"reserved_tokens"`
	Budget         *Budget   `json:"budget,omitempty" doc:"What may be spent in the period."`
}

// Budget is what may be spent.
type Budget struct {
	Cost   Amount `json:"cost,omitempty"`
	Tokens int64  `json:"tokens,omitempty"`
}

type modelCallsInput struct {
	JobPath
	Texts bool `query:"texts" doc:"With requests and answers, where the tenant has them recorded."`
}

func (s *Server) spendRoutes(api huma.API) {
	huma.Register(api, route(access.Viewer, http.MethodGet, "/v1/jobs/{id}/model-calls", "listModelCalls", "jobs", "List the model calls of a job",
		"Those of plugins and those of the agent itself: who asked which model for what, tokens, cost, time and what the rules did.", http.StatusNotFound), s.listModelCalls)
	huma.Register(api, route(access.Viewer, http.MethodGet, "/v1/spend", "spend", "operation", "Say what the tenant has spent on models", "Beside its budgets, by agent, in this day and this month of UTC."), s.spent)
}

func (s *Server) listModelCalls(ctx context.Context, in *modelCallsInput) (*body[ModelCallList], error) {
	out, err := s.service.Spending.ModelCalls(ctx, job.ID{Tenant: callerOf(ctx).Tenant, Job: in.ID}, in.Texts)
	if err != nil {
		return nil, s.failed(ctx, "list the model calls of a job", err)
	}
	out.Calls = list(out.Calls)
	return &body[ModelCallList]{out}, nil
}

func (s *Server) spent(ctx context.Context, _ *struct{}) (*body[SpendReport], error) {
	out, err := s.service.Spending.Spent(ctx, callerOf(ctx).Tenant)
	if err != nil {
		return nil, s.failed(ctx, "say what was spent", err)
	}
	out.Spent = list(out.Spent)
	return &body[SpendReport]{out}, nil
}

// ModelCalls gives the model calls of a job, with their texts where these are
// recorded and texts is set.
func (c *Client) ModelCalls(ctx context.Context, id string, texts bool) (out ModelCallList, err error) {
	q := url.Values{}
	if texts {
		q.Set("texts", "true")
	}
	return out, c.get(ctx, "/v1/jobs/"+seg(id)+"/model-calls", q, &out)
}

// Spend says what the tenant has spent on models.
func (c *Client) Spend(ctx context.Context) (out SpendReport, err error) {
	return out, c.get(ctx, "/v1/spend", nil, &out)
}
