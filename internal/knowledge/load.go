package knowledge

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/belay-run/belay/internal/finding"
)

// Folder is where an agent's references stand.
const Folder = "references"

const (
	maxFile     = 2 << 20 // bytes of one file
	maxPassages = 50_000
)

// Rules describes every finding that [Open] can make, sorted by id.
func Rules() []finding.Rule {
	return []finding.Rule{
		{ID: "knowledge-encoding", Summary: "A reference is not UTF-8 text.", Help: "Save it as UTF-8."},
		{ID: "knowledge-index", Summary: "The references could not be indexed.", Help: "This is not the author's fault; please report it."},
		{ID: "knowledge-too-large", Summary: "A reference is larger than 2 MiB, or all of them make more than 50,000 passages.", Help: "Split the file, or take out what is not needed."},
		{ID: "knowledge-unreadable", Summary: "A reference cannot be read.", Help: "Check that it is a file inside the agent's folder, and its permissions."},
	}
}

// load reads and splits the files, which are read through a root so that no link
// leads out of the folder.
func load(dir string, files []string) ([]piece, []finding.Finding) {
	if len(files) == 0 {
		return nil, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, []finding.Finding{problem(Folder, "knowledge-unreadable", "the agent's folder cannot be opened: "+cause(err), "check its permissions")}
	}
	defer func() { _ = root.Close() }() // opened for reading only
	var (
		pieces   []piece
		findings []finding.Finding
	)
	for _, file := range files {
		text, f := readFile(root, file)
		if f != nil {
			findings = append(findings, *f)
			continue
		}
		pieces = append(pieces, split(file, text)...)
		if len(pieces) > maxPassages {
			return nil, append(findings, problem(Folder, "knowledge-too-large", fmt.Sprintf("the references make more than %d passages", maxPassages), "take out what is not needed"))
		}
	}
	return pieces, findings
}

func readFile(root *os.Root, file string) (string, *finding.Finding) {
	fail := func(rule, message, hint string) (string, *finding.Finding) {
		f := problem(file, rule, message, hint)
		return "", &f
	}
	const unreadable, check = "knowledge-unreadable", "check that it is a file inside the agent's folder, and its permissions"
	info, err := root.Stat(file)
	if err == nil && !info.Mode().IsRegular() {
		return fail(unreadable, "this is not a regular file", check)
	}
	var f *os.File
	if err == nil { // a pipe that took the file's place since then must not block
		f, err = root.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}
	if err != nil {
		return fail(unreadable, "the file cannot be read: "+cause(err), check)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return fail(unreadable, "the file cannot be read: "+cause(err), check)
	case len(data) > maxFile:
		return fail("knowledge-too-large", fmt.Sprintf("the file is larger than %d MiB", maxFile>>20), "split it, or take out what is not needed")
	case !utf8.Valid(data):
		return fail("knowledge-encoding", "the file is not UTF-8 text", "save it as UTF-8")
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	return strings.ReplaceAll(string(data), "\r\n", "\n"), nil
}

func problem(file, rule, message, hint string) finding.Finding {
	return finding.Finding{File: file, Rule: rule, Severity: finding.Error, Message: message, Hint: hint}
}

// cause is the system's word for an error, without paths.
func cause(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}
