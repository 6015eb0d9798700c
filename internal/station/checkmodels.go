package station

import (
	"context"
	"slices"

	"github.com/belay-run/belay/internal/control"
	"github.com/belay-run/belay/internal/gateway"
)

// reachable looks whether the models that plugins may ask can be reached as far as one can
// tell without asking them.
func (c *checkup) reachable(ctx context.Context, all []Installed) {
	if !slices.ContainsFunc(all, func(in Installed) bool { return wantsModel(in.Manifest) }) {
		return
	}
	if c.gateway == nil && !c.cfg.Idle {
		c.say(control.Failing, "models for plugins", "the log says why; gateway.listen in belay.yaml says where", "the gateway does not listen: tools that ask models get no keys")
	}
	models, _ := c.askable(ctx, c.tenant) // it never fails
	if len(models) == 0 && c.cfg.Model == "" {
		c.say(control.Warning, "models for plugins", "write some under models in belay.yaml", "there is no model that a plugin may ask")
	}
	for _, m := range models {
		about := "model " + m.Alias
		up, err := c.upstream(ctx, c.tenant, m.Alias)
		switch {
		case err != nil:
			c.say(control.Failing, about, "plugins that ask it are refused", "%v", err)
		case up.API == gateway.Scripted:
			c.say(control.Note, about, "", "plugins may ask it; it is a script, %s", up.Model)
		default:
			c.say(control.Fine, about, "", "plugins may ask it: %s/%s at %s", up.Provider, up.Model, up.BaseURL)
		}
	}
}
