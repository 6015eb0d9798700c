package station

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/belay-run/belay/internal/agentjob"
	"github.com/belay-run/belay/internal/gateway"
	"github.com/belay-run/belay/internal/job"
	"github.com/belay-run/belay/internal/rawjson"
)

// modelKeys makes keys for the models' gateway.
type modelKeys interface {
	// Addresses are where the gateway answers, "" when it does not.
	Addresses() (url, anthropic, openai string)
	// Issue makes a key, which is good until [modelKeys.End].
	Issue(gateway.Binding) (gateway.Key, error)
	End(token string)
}

// addresses are variables that the program of a tool gets that asks models: where,
// never with which key. The vendors' SDKs read the last two.
func addresses(keys modelKeys) map[string]string {
	if keys == nil {
		return nil
	}
	url, anthropic, openai := keys.Addresses()
	if url == "" {
		return nil
	}
	return map[string]string{"BELAY_MODEL_URL": url, "ANTHROPIC_BASE_URL": anthropic, "OPENAI_BASE_URL": openai}
}

// Names of what a request to a tool brings beside its arguments, and as plugins with
// a manifest of the other name read it.
const (
	metaSecrets      = "belay/secrets"
	metaSecretsOther = "oz0/secrets"
	metaModel        = "belay/model"
	metaModelOther   = "oz0/model"
)

func (is traits) named(name, other string) string {
	if is.other {
		return other
	}
	return name
}

// recordTime is how long a tool's answer may wait for its model calls to be on record.
const recordTime = 5 * time.Second

// key makes the key of one call of a tool that asks models. end must be called when
// the call is over, and before its answer counts: it puts on record what was asked.
// Where no key can be made the call is made without one.
func (h *handlers) key(ctx context.Context, t agentjob.Tool, function string, meta map[string]json.RawMessage) (_ map[string]json.RawMessage, end func()) {
	end = func() {}
	is, err := h.servers.about(t)
	if err != nil || is.purpose == "" || h.servers.models == nil {
		return meta, end // whoever gets the server says what is wrong
	}
	at, _ := job.AttemptOf(ctx)
	k, err := h.servers.models.Issue(gateway.Binding{Tenant: at.Tenant, Job: at.Job, Agent: at.Agent, Plugin: t.Plugin, Tool: t.ID, Function: function, Step: at.Key, Purpose: is.purpose})
	if errors.Is(err, errNoModels) {
		return meta, end
	}
	if err != nil {
		h.log.Error("a tool gets no key for models", "tool", t.ID+"."+function, "job", at.Job, "error", err)
		return meta, end
	}
	if meta == nil {
		meta = map[string]json.RawMessage{}
	}
	meta[is.named(metaModel, metaModelOther)] = rawjson.Must(k)
	return meta, func() {
		h.servers.models.End(k.Token)
		if h.recorded == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
		defer cancel()
		if err := h.recorded(ctx, at.Tenant, at.Job); err != nil {
			h.log.Error("model calls of a tool are not on record yet", "tool", t.ID+"."+function, "job", at.Job, "error", err)
		}
	}
}
