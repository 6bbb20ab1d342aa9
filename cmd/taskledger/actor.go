package main

import (
	"os"
	"os/user"

	"github.com/spf13/cobra"
)

// addActorFlag adds --actor, which says who does something to what others rely on.
func addActorFlag(cmd *cobra.Command, actor *string) {
	cmd.Flags().StringVar(actor, "actor", "", "who does it (default: you, as this machine knows you)")
}

// actorOr returns the actor given, or else the user of this process; "", which is the user of
// the database, where it has none.
func actorOr(given string) string {
	if given != "" {
		return given
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}
