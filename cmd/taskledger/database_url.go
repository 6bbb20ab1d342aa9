package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func newDatabaseURLCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "database",
		Short: "Print the address of the database, with its password",
		Long: `Print the address of the database that the other commands use: of --database-url or $DATABASE_URL, else
of the server that serve or demo runs on this machine. It does not connect to it.`,
		Example: "  export DATABASE_URL=$(taskledger url database)",
		Args:    exactArgs(0),
		RunE: func(*cobra.Command, []string) error {
			if err := a.locate(); err != nil {
				return err
			}
			if a.config.databaseURL == "" {
				return a.errNoDatabase()
			}
			answer := struct {
				URL string `json:"url"`
			}{a.config.databaseURL}
			return a.print(answer, func(w io.Writer) { fmt.Fprintln(w, answer.URL) })
		},
	}
}
