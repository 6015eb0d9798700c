package station

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belay-run/belay/internal/chat"
	"github.com/belay-run/belay/internal/config"
	"github.com/belay-run/belay/internal/gateway"
	"github.com/belay-run/belay/internal/plugin"
	"github.com/belay-run/belay/internal/secret"
	"github.com/belay-run/belay/internal/spend"
)

// benchModels are the models that a plugin's functions ask on a workbench: scripts, by
// tenant and name. A tenant without any is like a place where no key can be made.
type benchModels struct {
	*gateway.Gateway
	ledger *spend.Ledger

	mu sync.Mutex
	of map[string]map[string]chat.Model
}

// openBenchModels makes the gateway of a workbench; nil when no tool asks models, or
// when it cannot listen, which is logged.
func openBenchModels(m *plugin.Manifest, scanners *scanners, log *slog.Logger) *benchModels {
	if !slices.ContainsFunc(m.Tools, func(t plugin.Tool) bool { return t.ModelPurpose != "" }) {
		return nil
	}
	b := &benchModels{of: map[string]map[string]chat.Model{}}
	var err error
	if b.ledger, err = spend.New(context.Background(), spend.Options{Store: forgetful{}, NewID: newID, Logger: log}); err == nil {
		b.Gateway, err = gateway.New(gateway.Config{
			Granted: func(context.Context, gateway.Binding) error { return nil },
			Models: func(_ context.Context, tenant string) (out []gateway.Model, _ error) {
				for _, name := range b.names(tenant) {
					out = append(out, gateway.Model{Alias: name, Provider: config.Scripted, Model: name, API: config.Scripted})
				}
				return out, nil
			},
			Upstream: b.upstream,
			Scanner:  func(ctx context.Context, tenant string) (*secret.Scanner, error) { return scanners.get(ctx, tenant) },
			Ledger:   b.ledger, Logger: log,
		})
	}
	if err == nil {
		err = b.Start()
	}
	if err != nil {
		log.Error("the plugin's tools that ask models get no keys", "error", err)
		return nil
	}
	return b
}

func (b *benchModels) names(tenant string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.of[tenant]))
}

func (b *benchModels) upstream(_ context.Context, tenant, name string) (gateway.Upstream, error) {
	b.mu.Lock()
	script := b.of[tenant][name]
	b.mu.Unlock()
	if script == nil {
		return gateway.Upstream{}, &gateway.Refusal{Status: http.StatusNotFound, Reason: fmt.Sprintf("there is no model %q; there are %s", name, strings.Join(b.names(tenant), ", "))}
	}
	return gateway.Upstream{API: gateway.Scripted, Alias: name, Provider: config.Scripted, Model: name, Script: script}, nil
}

var errNoModels = errors.New("there are no models here")

// Issue makes a key, unless the tenant has no models.
func (b *benchModels) Issue(to gateway.Binding) (gateway.Key, error) {
	if len(b.names(to.Tenant)) == 0 {
		return gateway.Key{}, errNoModels
	}
	return b.Gateway.Issue(to)
}

func (b *benchModels) close(ctx context.Context) error {
	if b == nil {
		return nil
	}
	return errors.Join(b.Close(ctx), b.ledger.Close(ctx))
}

// Models gives a tenant models that the plugin's functions may ask, by their names.
// They last as long as the workbench.
func (w *Workbench) Models(tenant string, models map[string]chat.Model) {
	if w.models == nil {
		return
	}
	w.models.mu.Lock()
	defer w.models.mu.Unlock()
	w.models.of[tenant] = models
}

// forgetful keeps no model calls.
type forgetful struct{}

func (forgetful) KeepModelCalls(context.Context, []spend.Record, []spend.Record) error { return nil }

func (forgetful) ModelSpending(context.Context, time.Time) ([]spend.Spent, error) { return nil, nil }
