package main

import (
	"testing"

	"github.com/spf13/cobra"
)

// maxCommands is the greatest number of commands that do something: a new one should be an object or an option of
// another, where it is not an act of its own.
const maxCommands = 50

// There are few commands, and the help of the program lists each in a group.
func TestCommandsAreFewAndGrouped(t *testing.T) {
	t.Parallel()
	n := 0
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		if !cmd.HasSubCommands() && cmd.Runnable() || cmd.Use == "serve" {
			n++
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	root := newApp().newRootCommand()
	visit(root)
	if n > maxCommands {
		t.Errorf("%d commands, want at most %d", n, maxCommands)
	}
	for _, cmd := range root.Commands() {
		if cmd.Runnable() && !cmd.Hidden && cmd.GroupID == "" {
			t.Errorf("%s is in no group", cmd.CommandPath())
		}
	}
}
