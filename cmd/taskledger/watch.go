package main

import (
	"bytes"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/loop"
)

// minWatch is the shortest interval of --watch.
const minWatch = 100 * time.Millisecond

// clearScreen moves to the top left of a terminal and clears it.
const clearScreen = "\x1b[H\x1b[2J"

// watchable adds --watch to a command that shows something: it repeats the command until it is interrupted. On a
// terminal each output replaces the previous one.
func (a *app) watchable(cmd *cobra.Command) *cobra.Command {
	var every time.Duration
	addDuration(cmd.Flags(), &every, "watch", "show it again at this `interval` (--watch alone: 2s)")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case every == 0 && !cmd.Flags().Changed("watch"):
			return run(cmd, args)
		case every < minWatch:
			return usagef("--watch must be at least %s, got %s", minWatch, every)
		}
		to := a.stdout
		defer func() { a.stdout = to }()
		for {
			var out bytes.Buffer
			a.stdout = &out
			err := run(cmd, args)
			if err := show(to, out.Bytes()); err != nil {
				return err
			}
			if cmd.Context().Err() != nil {
				return nil // interrupted
			}
			if err != nil {
				return err
			}
			if loop.Sleep(cmd.Context(), every) != nil {
				return nil
			}
		}
	}
	return cmd
}

// show writes an output. On a terminal it replaces the previous output.
func show(to io.Writer, out []byte) error {
	if f, ok := to.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			out = append([]byte(clearScreen), out...)
		}
	}
	_, err := to.Write(out)
	return err
}
