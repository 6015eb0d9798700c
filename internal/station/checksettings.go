package station

import (
	"context"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/config"
	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/sqlstore"
)

// settled looks whether the settings are those that are in use, and whether what they
// name is there.
func (c *checkup) settled(all []Installed) {
	path := filepath.Join(c.cfg.Data, config.File)
	now, findings := config.Read(path)
	switch {
	case finding.HasErrors(findings):
		for _, f := range findings {
			c.say(control.Failing, config.File, f.Hint, "%d:%d: %s; what runs goes on with what it read at its start", f.Line, f.Column, f.Message)
		}
	case !reflect.DeepEqual(now, c.settings):
		c.say(control.Warning, config.File, "end belay serve and start it again", "it has changed since it was read; what runs goes on with what it read at its start")
	}
	agents := map[string]bool{}
	for _, in := range all {
		for _, a := range in.Manifest.Agents {
			agents[a.ID] = true
		}
	}
	budgets := c.settings.Spending.Agents
	if own := c.settings.Tenants[c.tenant].Spending.Agents; own != nil {
		budgets = own
	}
	for _, name := range slices.Sorted(maps.Keys(budgets)) {
		if !agents[name] {
			c.say(control.Warning, "budgets", "names are exact; correct it unless its plugin is yet to come", "a budget is for agent %s, which no installed plugin has", name)
		}
	}
	used := map[string]bool{}
	for alias, m := range c.settings.Models {
		used[m.Called()], used[m.Provider+"/"+m.Called()] = true, true
		_, priced := c.settings.Price(m.Provider, m.Called(), alias)
		if b := c.settings.Budgets(c.tenant, ""); !priced && m.Provider != config.Scripted && (b.Job.Cost > 0 || b.Agent.Cost > 0 || b.Tenant.Cost > 0) {
			c.say(control.Failing, "model "+alias, "write its price with the model or under prices", "it has no price, and there is a budget of money: it is not asked")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.settings.Prices)) {
		if !used[name] && c.cfg.Model == "" {
			c.say(control.Note, "prices", "names are the providers', such as gpt-4o", "a price is for %s, which no model is", name)
		}
	}
	if listen := c.settings.Gateway.Listen; c.cfg.Idle && listen != "" { // nobody holds it, as far as we know
		if l, err := net.Listen("tcp", listen); err != nil {
			c.say(control.Failing, "models for plugins", "end what listens there, or write another address under gateway", "the gateway cannot listen: %v", err)
		} else {
			_ = l.Close() // it was only tried
		}
	}
}

// secrets looks which variables tools get that no secret of the tenant gives.
func (c *checkup) secrets(ctx context.Context, all []Installed) error {
	kept, err := c.store.Secrets(ctx, c.tenant)
	if err != nil {
		return err
	}
	for _, in := range all {
		for _, t := range in.Manifest.Tools {
			plain := slices.DeleteFunc(slices.Clone(t.Env), func(name string) bool {
				_, set := os.LookupEnv(name)
				return !set || slices.ContainsFunc(kept, func(s sqlstore.Secret) bool { return s.Name == name })
			})
			if len(plain) > 0 {
				c.say(control.Note, "tool "+t.ID, "belay secret set keeps those that are secret", "it gets %s from the environment: such values are not looked for, and nothing masks them", strings.Join(plain, ", "))
			}
		}
	}
	return nil
}
