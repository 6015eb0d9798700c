package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/secret"
	"github.com/belay-run/belay/internal/spend"
)

// The APIs that an [Upstream] may speak.
const (
	OpenAI    = "openai"
	Anthropic = "anthropic"
	Scripted  = "scripted" // answers on the routes of both
)

// Upstream is the model that answers, and how it is reached.
type Upstream struct {
	API      string // [OpenAI], [Anthropic] or [Scripted]
	Alias    string // its name in the settings
	Provider string
	Model    string            // the provider's name of it
	BaseURL  string            // OpenAI's ends in /v1, Anthropic's does not
	Key      string            // the provider's; "" for none
	Headers  map[string]string // more of them; they win over the caller's
	// Timeout is the longest silence: before the answer begins, and in it. 0 means
	// DefaultTimeout.
	Timeout time.Duration
	// CapField is the key of the request for a cap that is added on OpenAI's API, ""
	// for max_completion_tokens. Some servers know only max_tokens.
	CapField string
	Script   chat.Model // of a scripted model
}

// Defaults.
const (
	DefaultTimeout    = 10 * time.Minute // as long as the vendors' SDKs wait
	DefaultMaxRequest = 32 << 20
)

// What is done about secrets of the tenant in a request.
const (
	MaskSecrets   = "mask"   // their names go to the provider
	RefuseSecrets = "refuse" // the request is refused
	PassSecrets   = "pass"   // nothing: requests are not scanned
)

// Rules of a tenant.
type Rules struct {
	Secrets     string // "" for MaskSecrets
	MaxRequest  int64  // bytes; 0 for DefaultMaxRequest
	RecordTexts bool   // keep requests and answers with the call
}

// Model is one that a tenant may ask for.
type Model struct {
	Alias    string
	Provider string
	Model    string // the provider's name of it
	API      string
}

// Refusal is an error that the caller is told about. Reason holds no text of messages
// and no key.
type Refusal struct {
	Status int
	Reason string
}

func (r *Refusal) Error() string { return r.Reason }

// Config is what a gateway works with. An error of its functions that is no [Refusal]
// is logged, and the caller is told to try again.
type Config struct {
	Listen string // an address of this machine alone; "" for 127.0.0.1:0
	// Granted says whether a key's holder may use models; it is asked at each call.
	Granted func(ctx context.Context, b Binding) error
	// Upstream finds the model of a name, which may be an alias or the provider's own.
	Upstream func(ctx context.Context, tenant, model string) (Upstream, error)
	// Models lists those that a tenant may ask for.
	Models func(ctx context.Context, tenant string) ([]Model, error)
	Rules  func(tenant string) Rules // nil for the zero Rules
	// Scanner finds the secrets of a tenant; nil when it has none. With an error
	// requests are refused unless the rules let secrets pass.
	Scanner func(ctx context.Context, tenant string) (*secret.Scanner, error)
	Ledger  *spend.Ledger

	Logger    *slog.Logger
	Clock     func() time.Time
	NewID     func() string
	Transport http.RoundTripper // nil for its own
}

// Gateway is the server. It may be used from many goroutines.
type Gateway struct {
	cfg  Config
	http *http.Server
	// life is that of all calls; Close ends it.
	life context.Context
	end  context.CancelCauseFunc

	mu      sync.Mutex
	grants  map[digest]*grant
	address string // host:port once it listens
	closed  bool
	serving sync.WaitGroup

	refused, failed, unread tally

	// Bounds; tests shorten them.
	bodyTime, stall time.Duration
}

// New makes a gateway, which does not listen yet.
func New(cfg Config) (*Gateway, error) {
	if cfg.Granted == nil || cfg.Upstream == nil || cfg.Models == nil || cfg.Scanner == nil || cfg.Ledger == nil {
		return nil, errors.New("the gateway needs Granted, Upstream, Models, Scanner and Ledger")
	}
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	if cfg.Rules == nil {
		cfg.Rules = func(string) Rules { return Rules{} }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = func() string { return ulid.Make().String() }
	}
	if cfg.Transport == nil {
		cfg.Transport = ownTransport()
	}
	g := &Gateway{cfg: cfg, grants: map[digest]*grant{}, bodyTime: time.Minute, stall: 30 * time.Second}
	g.life, g.end = context.WithCancelCause(context.Background())
	g.http = &http.Server{
		Handler:           g,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		// An answer may take minutes, so bodies are read and answers written under
		// deadlines of their own.
		ErrorLog:                     slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn),
		DisableGeneralOptionsHandler: true,
	}
	return g, nil
}

// ownTransport is a client for providers. It unpacks nothing, so that answers stay as
// they are.
func ownTransport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.DisableCompression = true
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 256, 128
	t.MaxResponseHeaderBytes = 256 << 10
	return t
}

// Start listens and serves until [Gateway.Close].
func (g *Gateway) Start() error {
	host, _, err := net.SplitHostPort(g.cfg.Listen)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("the model gateway may listen on this machine alone, not on %q: give an address such as 127.0.0.1:0", g.cfg.Listen)
	}
	listener, err := net.Listen("tcp", g.cfg.Listen)
	if err != nil {
		return fmt.Errorf("the model gateway cannot listen: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.address != "" {
		return errors.Join(errors.New("the model gateway was started already"), listener.Close())
	}
	g.address = listener.Addr().String()
	g.serving.Go(func() {
		if err := g.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			g.cfg.Logger.Error("the model gateway does not listen any more", "error", err)
			g.mu.Lock()
			g.address = "" // no keys without a server
			g.mu.Unlock()
		}
	})
	return nil
}

// Addresses are the gateway's own and the base URLs for the vendors' SDKs; "" while it
// does not listen.
func (g *Gateway) Addresses() (url, anthropic, openai string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.address == "" {
		return "", "", ""
	}
	url = "http://" + g.address
	return url, url, url + "/v1"
}

// Close takes no more requests and waits for those under way. When ctx ends they are
// stopped; they are in the ledger all the same.
func (g *Gateway) Close(ctx context.Context) error {
	g.mu.Lock()
	g.closed, g.address = true, ""
	g.mu.Unlock()
	err := g.http.Shutdown(ctx)
	g.end(errStopped)
	g.mu.Lock()
	grants := g.grants
	g.grants = map[digest]*grant{}
	g.mu.Unlock()
	for _, grant := range grants {
		grant.revoke(errStopped)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("model calls were stopped: %w", err), g.http.Close())
	}
	g.serving.Wait()
	if t, ok := g.cfg.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
	for _, t := range []*tally{&g.refused, &g.failed, &g.unread} {
		t.rest(g.cfg.Logger)
	}
	return err
}
