package control

import (
	"context"
	"net/http"
	"path/filepath"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belay-run/belay/internal/access"
)

// PluginList are a tenant's plugins.
type PluginList struct {
	Plugins []Plugin `json:"plugins" doc:"In the order in which their hooks run."`
}

// MoveOrder says where a plugin is to stand.
type MoveOrder struct {
	Before string `json:"before,omitempty" maxLength:"256" doc:"The plugin before which its hooks run; left out, they run last."`
}

// GrantOrder lets a plugin do something, or no more.
type GrantOrder struct {
	Granted bool `json:"granted"`
}

// HookList are a tenant's hooks.
type HookList struct {
	Hooks []Hook `json:"hooks" doc:"In the order in which they are asked."`
}

// PluginPath names a plugin in a path.
type PluginPath struct {
	Name string `path:"name" maxLength:"256"`
}

type updateInput struct {
	PluginPath
	Body PluginOrder
}

type removeInput struct {
	PluginPath
	Force bool `query:"force" doc:"Also while jobs that pinned it run. They keep its snapshot."`
}

type moveInput struct {
	PluginPath
	Body MoveOrder
}

type grantInput struct {
	PluginPath
	Body GrantOrder
}

type hookInput struct {
	Event string `query:"event" maxLength:"64" enum:"pre_tool_call,post_tool_call,job_start,job_end,pre_llm_call"`
	Tool  string `query:"tool" maxLength:"512" doc:"Hooks that see calls of this function, <tool>.<function>."`
	Agent string `query:"agent" maxLength:"256" doc:"Hooks that watch this agent."`
}

type shadowInput struct {
	Jobs int `query:"jobs" minimum:"1" maximum:"10000" default:"200" doc:"How many of the newest jobs to look through."`
}

func (s *Server) pluginRoutes(api huma.API) {
	const tag = "plugins"
	get := func(path, id, tag, summary string) huma.Operation {
		return route(access.Viewer, http.MethodGet, path, id, tag, summary, "")
	}
	post := func(path, id, summary, description string) huma.Operation {
		return route(access.Admin, http.MethodPost, path, id, tag, summary, description, http.StatusNotFound, http.StatusConflict)
	}
	install := post("/v1/plugins", "installPlugin", "Install a plugin",
		"Takes a snapshot of a folder on the server's machine. What an admin must accept first is refused with needs_acceptance (409). Running jobs stay as they are.")
	install.DefaultStatus = http.StatusCreated
	huma.Register(api, get("/v1/plugins", "listPlugins", tag, "List the tenant's plugins"), s.listPlugins)
	huma.Register(api, install, s.installPlugin)
	huma.Register(api, post("/v1/plugins/{name}/update", "updatePlugin", "Update a plugin", "It keeps its place. Running jobs stay as they are."), s.updatePlugin)
	huma.Register(api, post("/v1/plugins/{name}/order", "movePlugin", "Change the order of the plugins", ""), s.movePlugin)
	huma.Register(api, post("/v1/plugins/{name}/grants/model", "grantModel", "Let a plugin call the model, or no more", ""), s.grantModel)
	huma.Register(api, route(access.Admin, http.MethodDelete, "/v1/plugins/{name}", "removePlugin", tag, "Remove a plugin", "Refused while jobs that pinned it run, unless forced.",
		http.StatusNotFound, http.StatusConflict), s.removePlugin)
	huma.Register(api, get("/v1/hooks", "listHooks", "hooks", "Say which hook sees what"), s.listHooks)
	huma.Register(api, get("/v1/hooks/shadow", "shadowReport", "hooks", "Say what hooks that only look on would have changed"), s.shadowReport)
}

func (s *Server) listPlugins(ctx context.Context, _ *struct{}) (*body[PluginList], error) {
	all, err := s.service.Plugins.Plugins(ctx, callerOf(ctx).Tenant)
	if err != nil {
		return nil, s.failed(ctx, "list the plugins", err)
	}
	return &body[PluginList]{PluginList{list(all)}}, nil
}

func (s *Server) installPlugin(ctx context.Context, in *struct{ Body PluginOrder }) (*body[Installation], error) {
	return s.install(ctx, "install a plugin", in.Body)
}

func (s *Server) updatePlugin(ctx context.Context, in *updateInput) (*body[Installation], error) {
	in.Body.Name = in.Name
	if in.Body.Before != "" {
		return nil, Refuse(Invalid, "an update keeps the plugin's place", "leave out before, and change the order by itself")
	}
	return s.install(ctx, "update a plugin", in.Body)
}

func (s *Server) install(ctx context.Context, what string, o PluginOrder) (*body[Installation], error) {
	if !filepath.IsAbs(o.Path) {
		return nil, Refuse(Invalid, "the plugin's path does not begin at the root", "send the absolute path of its folder on the server's machine")
	}
	done, err := s.service.Plugins.InstallPlugin(ctx, callerOf(ctx), o)
	if err != nil {
		return nil, s.failed(ctx, what, err)
	}
	return &body[Installation]{done}, nil
}

func (s *Server) removePlugin(ctx context.Context, in *removeInput) (*struct{}, error) {
	if err := s.service.Plugins.RemovePlugin(ctx, callerOf(ctx), in.Name, in.Force); err != nil {
		return nil, s.failed(ctx, "remove a plugin", err)
	}
	return nil, nil
}

func (s *Server) movePlugin(ctx context.Context, in *moveInput) (*struct{}, error) {
	if err := s.service.Plugins.MovePlugin(ctx, callerOf(ctx), in.Name, in.Body.Before); err != nil {
		return nil, s.failed(ctx, "move a plugin", err)
	}
	return nil, nil
}

func (s *Server) grantModel(ctx context.Context, in *grantInput) (*struct{}, error) {
	if err := s.service.Plugins.GrantModel(ctx, callerOf(ctx), in.Name, in.Body.Granted); err != nil {
		return nil, s.failed(ctx, "change what a plugin may", err)
	}
	return nil, nil
}

func (s *Server) listHooks(ctx context.Context, in *hookInput) (*body[HookList], error) {
	all, err := s.service.Hooks.Hooks(ctx, callerOf(ctx).Tenant, HookQuery{Event: in.Event, Tool: in.Tool, Agent: in.Agent})
	if err != nil {
		return nil, s.failed(ctx, "list the hooks", err)
	}
	return &body[HookList]{HookList{list(all)}}, nil
}

func (s *Server) shadowReport(ctx context.Context, in *shadowInput) (*body[ShadowReport], error) {
	r, err := s.service.Hooks.ShadowReport(ctx, callerOf(ctx).Tenant, in.Jobs)
	if err != nil {
		return nil, s.failed(ctx, "read what hooks would have changed", err)
	}
	r.Hooks = list(r.Hooks)
	return &body[ShadowReport]{r}, nil
}
