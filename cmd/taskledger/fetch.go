package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/pgfetch"
)

func addNoFetchFlag(cmd *cobra.Command, refused *bool) {
	cmd.Flags().BoolVar(refused, "no-fetch", false, "fail if PostgreSQL is not installed, instead of fetching it")
	bind(cmd.Flags(), "no-fetch", pgfetch.RefuseVariable)
}

// fetchPostgres returns the function that fetches PostgreSQL where it is not installed; nil: it is refused.
func (a *app) fetchPostgres(refused bool) func(context.Context) (string, error) {
	if refused {
		return nil
	}
	return func(ctx context.Context) (string, error) {
		var show func(int64)
		stop := func() {}
		defer func() { stop() }()
		return pgfetch.Binaries(ctx, pgfetch.Config{
			Begin: func(n pgfetch.Notice) {
				fmt.Fprintf(a.stderr, "PostgreSQL is not installed: %s; --no-fetch refuses\n", n)
			},
			Progress: func(done, total int64) {
				if show == nil {
					show, stop = a.progress("fetched bytes", total)
				}
				show(done)
			},
		})
	}
}
