package main

import (
	"encoding/json"
	"io"
	"os"
)

// maxRead is more than any database accepts for args, and bounds the memory.
const maxRead = 64 << 20

// readFile reads a file that a command line names; - is standard input.
func (a *app) readFile(name string) ([]byte, error) {
	if name == "-" {
		return readLimited(a.stdin, "standard input")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, usagef("%s", err)
	}
	defer func() { _ = f.Close() }() // it is only read
	return readLimited(f, name)
}

// readJSON reads a file of JSON, which it does not change, or of YAML, which it converts to JSON.
func (a *app) readJSON(name string) ([]byte, error) {
	text, err := a.readFile(name)
	if err != nil || json.Valid(text) {
		return text, err
	}
	if text, err = yamlToJSON(text); err != nil {
		return nil, usagef("%s: %s", name, err)
	}
	return text, nil
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
