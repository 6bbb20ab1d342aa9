package main

import (
	"io"
	"regexp"
	"testing"
)

// A long operation of unknown length reports how long it runs, and nothing after its end.
func TestBusy(t *testing.T) {
	t.Parallel()
	reader, writer := io.Pipe()
	a := newApp()
	a.stderr, a.config.output = writer, formatJSON
	stop := a.busy("folding the events")
	line := make([]byte, 100)
	n, err := reader.Read(line)
	if err != nil || !regexp.MustCompile(`^folding the events: \d+s so far\n$`).Match(line[:n]) {
		t.Errorf("%q, %v", line[:n], err)
	}
	stop()
}
