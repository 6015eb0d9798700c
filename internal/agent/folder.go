package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/yamlfile"
)

const (
	maxFile  = 2 << 20 // bytes of one file
	maxFiles = 10_000  // files and folders of an agent
)

// folder is an agent's folder. Everything is read through root, which refuses
// paths that leave it, by links too.
type folder struct {
	path     string
	root     *os.Root
	files    int // walked so far
	findings *[]finding.Finding
}

func openFolder(dir string, findings *[]finding.Finding) *folder {
	f := &folder{findings: findings}
	whole := f.reader(".").Whole()
	abs, err := filepath.Abs(dir)
	if err == nil {
		f.root, err = os.OpenRoot(abs)
	}
	if err != nil {
		message, hint := "the agent's folder cannot be opened: "+yamlfile.Cause(err), "check its permissions"
		switch info, statErr := os.Stat(dir); {
		case errors.Is(statErr, fs.ErrNotExist):
			message, hint = "there is no folder "+dir, "check the path, or make an agent there with belay init"
		case statErr == nil && !info.IsDir():
			message, hint = dir+" is a file, not an agent's folder", "name the folder that holds "+AgentFile
		}
		whole.Err("no-folder", message, hint)
		return nil
	}
	f.path = abs
	if entries, err := fs.ReadDir(f.root.FS(), "."); err != nil {
		whole.Err("no-folder", "the agent's folder cannot be read: "+yamlfile.Cause(err), "check its permissions")
		f.close()
		return nil
	} else if len(entries) == 0 {
		whole.Err("empty-folder", "the folder is empty", "make an agent there with belay init")
		f.close()
		return nil
	}
	return f
}

func (f *folder) close() { _ = f.root.Close() } // opened for reading only

func (f *folder) reader(file string) *yamlfile.Reader { return yamlfile.NewReader(file, f.findings) }

// exists says that there is something of that name, a broken link too.
func (f *folder) exists(name string) bool {
	_, err := f.root.Lstat(name)
	return err == nil
}

// yaml reads one of the folder's YAML files. It is nil when there is none, when
// it cannot be read or when nothing is in it; the latter two are reported.
func (f *folder) yaml(name string) *yamlfile.Node {
	r := f.reader(name)
	if !f.exists(name) {
		if name == AgentFile {
			hint := "write one, or make an agent with belay init"
			if f.exists("agent.yaml") {
				hint = "rename agent.yaml"
			}
			r.Whole().Err("missing-agent-yml", "there is no "+AgentFile+", so this is not an agent's folder", hint)
		}
		return nil
	}
	data, ok := f.read(name, r.Whole())
	if !ok {
		return nil
	}
	before := len(*f.findings)
	n := r.Parse(data)
	if n == nil && len(*f.findings) == before && (name == AgentFile || name == IntegrationsFile) {
		r.Whole().Err("empty-file", "nothing is in the file", "write its keys, or start from what belay init makes")
	}
	return n
}

// read reads a regular file of the folder, and reports at where it is named when
// it cannot.
func (f *folder) read(name string, at yamlfile.Spot) ([]byte, bool) {
	data, err := yamlfile.Load(f.root, name, maxFile)
	switch {
	case err == nil:
		return data, true
	case errors.Is(err, yamlfile.ErrIrregular):
		at.Err("unreadable-file", "this is not a regular file", "put a file in its place")
	case errors.Is(err, yamlfile.ErrTooLarge):
		at.Err("file-too-large", fmt.Sprintf("the file is larger than %d MiB", maxFile>>20), "split it, or take out what is not needed")
	default:
		f.unreadable(name, at, err)
	}
	return nil, false
}

func (f *folder) unreadable(name string, at yamlfile.Spot, err error) {
	info, lerr := f.root.Lstat(name)
	if lerr == nil && info.Mode()&fs.ModeSymlink != 0 && !errors.Is(err, fs.ErrPermission) {
		at.Err("outside-folder", "this link leads out of the agent's folder, or nowhere", "copy the file into the folder")
		return
	}
	at.Err("unreadable-file", "the file cannot be read: "+yamlfile.Cause(err), "check that it is there and its permissions")
}

// linked reads a file that is named in another file.
func (f *folder) linked(at yamlfile.Spot, name, missing string) ([]byte, bool) {
	clean := path.Clean(name)
	switch {
	case name == "" || !filepath.IsLocal(clean):
		at.Err("outside-folder", "this names a file outside the agent's folder", "put the file into the folder and name it by its relative path")
		return nil, false
	case !f.exists(clean):
		at.Err(missing, "this names a file that does not exist", "write the file, or correct the path; it is relative to the agent's folder")
		return nil, false
	}
	return f.read(clean, at)
}

// list finds the Python files and the references, and what stands where nothing
// looks for it.
func (a *Agent) list(f *folder) {
	if f.regular("hooks.py") {
		a.HookFiles = append(a.HookFiles, "hooks.py")
	}
	if f.regular("tools.py") {
		a.ToolFiles = append(a.ToolFiles, "tools.py")
	}
	python := func(p string) bool { return path.Ext(p) == ".py" && path.Base(p) != "__init__.py" }
	a.HookFiles = append(a.HookFiles, f.walk("hooks", python)...)
	for _, p := range f.walk("tools", python) {
		if path.Dir(p) == "tools" {
			a.ToolFiles = append(a.ToolFiles, p)
			continue
		}
		f.reader(p).Whole().Warn("not-acted-on", "tools are read from tools.py and tools/*.py, not from folders below", "move the file up if it has tools")
	}
	a.KnowledgeFiles = f.walk("references", func(p string) bool { return strings.EqualFold(path.Ext(p), ".md") })
	f.walk("lib", func(string) bool { return false }) // for its links
	a.listSkills(f)
	slices.Sort(a.HookFiles)
	slices.Sort(a.ToolFiles)

	for _, m := range [][2]string{
		{"agent.yaml", AgentFile}, {"integrations.yaml", IntegrationsFile}, {"responses.yaml", ResponsesFile}, {"integration.yml", IntegrationsFile},
		{"response.yml", ResponsesFile}, {"memory.yaml", "memory.yml"}, {"hook.py", "hooks.py"}, {"hook", "hooks/"}, {"tool", "tools/"},
		{"tool.py", "tools.py"}, {"reference", "references/"},
	} {
		if f.exists(m[0]) && (m[0] != "agent.yaml" || f.exists(AgentFile)) {
			f.reader(m[0]).Whole().Warn("misnamed-file", "nothing reads this; the name looked for is "+m[1], "rename it, or delete it if it is not meant for Belay")
		}
	}
}

// listSkills finds the Python files and the references of skills.
func (a *Agent) listSkills(f *folder) {
	for _, p := range f.walk("skills", func(string) bool { return true }) {
		id := OwnerOf(p)
		k := a.Skills.Skill(id)
		if k == nil || k.Builtin {
			continue
		}
		inside := strings.TrimPrefix(p, "skills/"+id+"/")
		switch dir, name := path.Split(inside); {
		case strings.HasPrefix(dir, "references/") && strings.EqualFold(path.Ext(name), ".md"):
			k.References = append(k.References, p)
		case path.Ext(name) == ".py" && name != "__init__.py" && (inside == "tools.py" || dir == "tools/"):
			a.ToolFiles = append(a.ToolFiles, p)
		case dir == "" && misnamed[name] != "":
			f.reader(p).Whole().Warn("misnamed-file", "nothing reads this; the name looked for is "+misnamed[name], "rename it, or delete it if it is not meant for Belay")
		}
	}
}

// misnamed are names in a skill's folder that are close to one that is read.
var misnamed = map[string]string{"memory.yaml": MemoryFile, "responses.yaml": ResponsesFile, "response.yml": ResponsesFile, "tool.py": "tools.py", "hooks.py": "hooks.py at the top of the agent's folder"}

func (f *folder) regular(name string) bool {
	if !f.exists(name) {
		return false
	}
	info, err := f.root.Stat(name)
	if err != nil {
		f.unreadable(name, f.reader(name).Whole(), err)
		return false
	}
	if !info.Mode().IsRegular() {
		f.reader(name).Whole().Err("unreadable-file", "this is not a regular file", "put a file in its place")
		return false
	}
	return true
}

// names lists what is in a folder of the agent, without dot files.
func (f *folder) names(dir string) []string {
	entries, err := fs.ReadDir(f.root.FS(), dir)
	if err != nil {
		return nil // not there; walk reports the folders that matter
	}
	var out []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e.Name())
		}
	}
	return out
}

// walk lists the files below dir that want accepts, sorted. Links to files of the
// folder count as files; links to folders are not followed.
func (f *folder) walk(dir string, want func(path string) bool) []string {
	if !f.exists(dir) {
		return nil
	}
	if info, err := f.root.Stat(dir); err != nil || !info.IsDir() {
		if err != nil {
			f.unreadable(dir, f.reader(dir).Whole(), err)
		} else {
			f.reader(dir).Whole().Err("unreadable-file", "this is not a folder", "make it a folder, or rename it")
		}
		return nil
	}
	var out []string
	err := fs.WalkDir(f.root.FS(), dir, func(p string, d fs.DirEntry, err error) error {
		whole := f.reader(p).Whole()
		if err != nil {
			f.unreadable(p, whole, err)
			return nil // go on with the rest
		}
		if f.files++; f.files > maxFiles {
			f.reader(dir).Whole().Err("too-many-files", fmt.Sprintf("the agent has more than %d files", maxFiles), "take out what does not belong to it")
			return fs.SkipAll
		}
		hidden := p != dir && (d.Name() == "__pycache__" || strings.HasPrefix(d.Name(), "."))
		switch {
		case d.IsDir():
			if hidden {
				return fs.SkipDir
			}
		case hidden:
		case d.Type()&fs.ModeSymlink != 0:
			if f.link(p, whole) && want(p) {
				out = append(out, p)
			}
		case d.Type().IsRegular() && want(p):
			out = append(out, p)
		}
		return nil
	})
	if err != nil {
		f.unreadable(dir, f.reader(dir).Whole(), err)
	}
	slices.Sort(out)
	return out
}

// link says whether a link leads to a file of the folder.
func (f *folder) link(p string, at yamlfile.Spot) bool {
	info, err := f.root.Stat(p)
	switch {
	case err != nil:
		f.unreadable(p, at, err)
		return false
	case info.IsDir():
		at.Warn("linked-folder", "this link to a folder is not followed", "put the files there, or link them one by one")
		return false
	}
	return info.Mode().IsRegular()
}
