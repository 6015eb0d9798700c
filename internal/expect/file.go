package expect

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/belay-run/belay/internal/finding"
	"github.com/belay-run/belay/internal/yamlfile"
)

// MaxFile is the size of a file of tests, far beyond what people write.
const MaxFile = 2 << 20

// ErrTooLarge says that a file has more than MaxFile bytes.
var ErrTooLarge = fmt.Errorf("it has more than %d MiB", MaxFile>>20)

// Load reads a file of tests, or one that such a file names. Its errors are without
// the path, which findings have.
func Load(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, cause(err)
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no file")
	case info.Size() > MaxFile:
		return nil, ErrTooLarge
	}
	data, err := os.ReadFile(path)
	if err == nil && len(data) > MaxFile {
		err = ErrTooLarge
	}
	return data, cause(err)
}

// Read reads a file of tests. What keeps it from that is reported under these rules.
func Read(path, tooLarge, missing string) ([]byte, []finding.Finding) {
	data, err := Load(path)
	var findings []finding.Finding
	whole := yamlfile.NewReader(path, &findings).Whole()
	switch {
	case errors.Is(err, ErrTooLarge):
		whole.Err(tooLarge, fmt.Sprintf("the file has more than %d MiB", MaxFile>>20), "split it, or move scripts into files of their own with model: {script: FILE}")
	case err != nil:
		whole.Err(missing, "the file cannot be read: "+err.Error(), "name a file that is there")
	}
	return data, findings
}

func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
