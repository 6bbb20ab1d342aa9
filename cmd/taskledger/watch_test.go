package main

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/spf13/cobra"
)

// A watched command runs until it is interrupted, and writes each output whole.
func TestWatch(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	var out bytes.Buffer
	a := newApp()
	a.stdout = &out
	n := 0
	cmd := a.watchable(&cobra.Command{RunE: func(*cobra.Command, []string) error {
		if n++; n == 3 {
			interrupt()
		}
		fmt.Fprintln(a.stdout, "run", n)
		return nil
	}})
	cmd.SetArgs([]string{"--watch=100ms"})
	if err := cmd.ExecuteContext(ctx); err != nil || out.String() != "run 1\nrun 2\nrun 3\n" {
		t.Errorf("%v: %q", err, out.String())
	}
	once := a.watchable(&cobra.Command{RunE: func(*cobra.Command, []string) error {
		fmt.Fprintln(a.stdout, "once")
		return nil
	}})
	out.Reset()
	once.SetArgs(nil)
	if err := once.ExecuteContext(t.Context()); err != nil || out.String() != "once\n" {
		t.Errorf("%v: %q", err, out.String())
	}
}
