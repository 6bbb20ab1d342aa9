package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/operator"
)

func newTaskDeadCommand(a *app) *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "Show dead tasks, grouped by their error",
		Long: `Show dead tasks in groups, the largest first. A group has one kind and one fingerprint: errors of
one type whose messages differ only in numbers, UUIDs and quoted parts. Release a group with
taskledger task release --fingerprint.`,
		Example: "  taskledger task dead\n  taskledger task dead --kind coupon.send -o json",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return showDead(ctx, a, pool, ledger.Kind(kind))
			})
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "", "only tasks of this kind")
	return cmd
}

func showDead(ctx context.Context, a *app, pool *pgxpool.Pool, kind ledger.Kind) error {
	groups, err := operator.ReadDead(ctx, pool, kind)
	if err != nil {
		return err
	}
	list := struct {
		Groups []operator.DeadGroup `json:"groups"`
	}{append([]operator.DeadGroup{}, groups...)}
	if err := printList(a, list, groups, func(w io.Writer) {
		if len(groups) == 0 {
			return
		}
		t := newTable([]any{"kind", "fingerprint", "tasks", "oldest", "newest", "for example", "error"}, 3, 4, 5)
		for _, g := range groups {
			t.AppendRow(table.Row{plain(string(g.Kind)), plain(g.Fingerprint), count(g.Tasks),
				ago(g.Oldest), ago(g.Newest), shorten(string(g.Example.BizID), 40), shorten(g.Error, 60)})
		}
		renderTable(w, t)
	}); err != nil {
		return err
	}
	if len(groups) == 0 {
		fmt.Fprintln(a.stderr, "no dead tasks")
	}
	return noteLag(ctx, a, pool)
}
