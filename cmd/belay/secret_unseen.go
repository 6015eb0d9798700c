package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// readUnseen reads a line from a terminal that does not show what is typed. Whoever
// interrupts it gets the terminal back as it was.
func readUnseen(in *os.File) (line []byte, err error) {
	fd := int(in.Fd())
	before, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return nil, fmt.Errorf("hide what is typed: %w; use --file or standard input", err)
	}
	unseen := *before
	unseen.Lflag &^= unix.ECHO
	unseen.Lflag |= unix.ICANON | unix.ISIG
	if err := unix.IoctlSetTermios(fd, setTermios, &unseen); err != nil {
		return nil, fmt.Errorf("hide what is typed: %w; use --file or standard input", err)
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	defer signal.Stop(interrupted)
	read := make(chan error, 1)
	go func() { // when interrupted it ends with the process
		var err error
		line, err = readLine(in)
		read <- err
	}()
	select {
	case err = <-read:
	case <-interrupted:
		err = errors.New("interrupted")
		line = nil
	}
	return line, errors.Join(err, unix.IoctlSetTermios(fd, setTermios, before))
}
