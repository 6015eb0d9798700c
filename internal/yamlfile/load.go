package yamlfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Why a file is not read.
var (
	ErrIrregular = errors.New("it is no regular file")
	ErrTooLarge  = errors.New("it is too large")
)

// Load reads a regular file of a folder that has at most so many bytes, through root,
// which refuses paths that leave it, by links too. [ErrIrregular], [ErrTooLarge].
func Load(root *os.Root, name string, most int64) ([]byte, error) {
	info, err := root.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, ErrIrregular
	case info.Size() > most:
		return nil, ErrTooLarge
	}
	// A pipe that took the file's place since then must not block.
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // opened for reading only
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(data)) > most {
		err = ErrTooLarge
	}
	return data, err
}

// Cause is the system's word for an error, without paths, which findings have.
func Cause(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}
