package main

import (
	"os"
	"os/user"

	"github.com/spf13/cobra"
)

// addActorFlag adds --actor, the author of a change, to a command that writes events.
func addActorFlag(cmd *cobra.Command, actor *string) {
	cmd.Flags().StringVar(actor, "actor", "", "author of the change (default: your user name on this machine)")
}

// addReasonFlag adds --reason, the reason of a change.
func addReasonFlag(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "reason, for the record")
}

// actorOr returns the given actor, or else the user name of this process. It returns "", which stands for the
// user of the database, if there is no such name.
func actorOr(given string) string {
	if given != "" {
		return given
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}
