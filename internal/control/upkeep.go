package control

import (
	"context"
	"net/http"
	"path/filepath"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belay-run/belay/internal/access"
)

// Upkeep is for whoever runs the data folder.
type Upkeep interface {
	// Checkup looks for what is wrong with a tenant and the data folder, and for what
	// is worth knowing. It starts the servers of the tenant's plugins.
	Checkup(ctx context.Context, tenant string) ([]Check, error)
	// Backup writes a copy of the data folder, of all its tenants, to a new file.
	Backup(ctx context.Context, c Caller, path string) (Backup, error)
}

// Level says how much a check matters.
type Level string

// The levels, the worst last.
const (
	Fine    Level = "ok"
	Note    Level = "note"    // worth knowing
	Warning Level = "warning" // something will not go as it should
	Failing Level = "error"   // something does not work
)

// Check is one thing that was looked at.
type Check struct {
	Level Level  `json:"level" enum:"ok,note,warning,error"`
	About string `json:"about" doc:"What was looked at, such as a plugin."`
	Text  string `json:"text" doc:"What was found, in a sentence."`
	Hint  string `json:"hint,omitempty" doc:"What to do about it."`
}

// Checkup is all that was looked at.
type Checkup struct {
	Checks []Check `json:"checks" doc:"In the order in which it was looked at."`
}

// BackupOrder is a copy to be made.
type BackupOrder struct {
	Path string `json:"path" minLength:"1" maxLength:"4096" doc:"The new file on the server's machine, an absolute path."`
}

// Backup is a copy that was made, or looked through.
type Backup struct {
	Path    string    `json:"path"`
	Made    time.Time `json:"made"`
	Version string    `json:"version,omitempty" doc:"Of the program that made it."`
	Bytes   int64     `json:"bytes"`
	Plugins []string  `json:"plugins,omitempty" doc:"The digests of the snapshots in it."`
	// Key is the public half of the master key that its texts are encrypted under.
	Key string `json:"key" doc:"The public half of the master key, which is not in it."`
}

func (s *Server) upkeepRoutes(api huma.API) {
	huma.Register(api, route(access.Admin, http.MethodPost, "/v1/checkup", "checkup", "operation", "Look for what is wrong or worth knowing",
		"Changes nothing, and starts the servers of the tenant's plugins."), s.checkup)
	backup := route(access.Admin, http.MethodPost, "/v1/backups", "makeBackup", "operation", "Copy the data folder to a file",
		"For the owner of the data folder alone: the copy has the data of all tenants.", http.StatusConflict)
	backup.DefaultStatus = http.StatusCreated
	huma.Register(api, backup, s.backup)
}

func (s *Server) checkup(ctx context.Context, _ *struct{}) (*body[Checkup], error) {
	all, err := s.service.Upkeep.Checkup(ctx, callerOf(ctx).Tenant)
	if err != nil {
		return nil, s.failed(ctx, "look for what is wrong", err)
	}
	return &body[Checkup]{Checkup{list(all)}}, nil
}

func (s *Server) backup(ctx context.Context, in *struct{ Body BackupOrder }) (*body[Backup], error) {
	if !visitorOf(ctx).Owner {
		return nil, Refuse(Invalid, "a copy of the data folder has the data of all tenants, and a token is one tenant's", "run belay backup as the user whose data folder it is")
	}
	if !filepath.IsAbs(in.Body.Path) {
		return nil, Refuse(Invalid, "the copy's path does not begin at the root", "send an absolute path on the server's machine")
	}
	made, err := s.service.Upkeep.Backup(ctx, callerOf(ctx), in.Body.Path)
	if err != nil {
		return nil, s.failed(ctx, "copy the data folder", err)
	}
	return &body[Backup]{made}, nil
}

// Checkup looks for what is wrong or worth knowing.
func (c *Client) Checkup(ctx context.Context) ([]Check, error) {
	var out Checkup
	err := c.post(ctx, "/v1/checkup", nil, &out)
	return out.Checks, err
}

// Backup copies the data folder to a file on the server's machine.
func (c *Client) Backup(ctx context.Context, path string) (out Backup, err error) {
	return out, c.post(ctx, "/v1/backups", BackupOrder{path}, &out)
}
