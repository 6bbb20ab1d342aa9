package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// A command whose output cannot be written fails, whatever its format is.
func TestOutputOnAFullDisk(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"table", "json", "jsonl"} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skipf("the system has no device that is full: %v", err)
		}
		defer full.Close()
		var stderr bytes.Buffer
		args := []string{"--version", "-o", format}
		if exit := newApp().Run(t.Context(), args, strings.NewReader(""), full, &stderr); exit != exitFailed ||
			!strings.Contains(stderr.String(), "no space left on device") {
			t.Errorf("%s: exit code %d, %s", format, exit, &stderr)
		}
	}
}
