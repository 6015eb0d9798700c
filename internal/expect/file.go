package expect

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
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

func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
