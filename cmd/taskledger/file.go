package main

import (
	"io"
	"os"
)

// maxRead is more than any database allows for args, and less than what would be a nuisance.
const maxRead = 64 << 20

// readFile reads a file that a command line names, - for standard input.
func (a *app) readFile(name string) ([]byte, error) {
	if name == "-" {
		return readLimited(a.stdin, "standard input")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, usagef("%s", err)
	}
	defer f.Close()
	return readLimited(f, name)
}

func readLimited(r io.Reader, name string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxRead+1))
	if err != nil {
		return nil, usagef("read %s: %s", name, err)
	}
	if len(text) > maxRead {
		return nil, usagef("%s has more than %d bytes", name, maxRead)
	}
	return text, nil
}
