package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/ledger"
)

func listIllegal(ctx context.Context, a *app, pool *pgxpool.Pool, f showFlags) error {
	after, err := parseEventPlace(f.after)
	if err != nil {
		return err
	}
	all, next, err := cutPage(f.limit, func(limit int) ([]projection.IllegalEvent, error) {
		return projection.ListIllegal(ctx, pool, after, limit)
	}, func(e projection.IllegalEvent) string { return eventPlace(e.Key, e.Version) })
	if err != nil {
		return err
	}
	list := struct {
		Illegal []projection.IllegalEvent `json:"illegal"`
		Next    string                    `json:"next,omitempty"`
	}{all, next}
	if err := printList(a, list, all, func(w io.Writer) {
		if len(all) == 0 {
			return
		}
		t := newTable([]any{"task", "version", "found", "reason"}, 2, 3)
		for _, e := range all {
			t.AppendRow(table.Row{plain(e.Key.String()), e.Version, ago(e.FoundAt), plain(e.Reason)})
		}
		renderTable(w, t)
	}); err != nil {
		return err
	}
	if len(all) == 0 {
		fmt.Fprintln(a.stderr, "no illegal events")
	}
	noteNext(a, next)
	return nil
}

func newDismissIllegalCommand(a *app) *cobra.Command {
	var actor, reason string
	cmd := &cobra.Command{
		Use:   "illegal KIND BIZ_ID",
		Short: "Remove the illegal events of a task from the list",
		Long: `Remove the illegal events of a task from the list. They stay in the ledger, and the task is listed as
before them. First take INSERT on the table event from the role that wrote them, which
taskledger history shows. If the task gets another event, or the projection is rebuilt,
its illegal events are listed again.`,
		Example: "  taskledger dismiss illegal coupon.send order-17 --reason 'role corrected'",
		Args:    exactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			// The key of an illegal event may be invalid.
			key := ledger.Key{Kind: ledger.Kind(args[0]), BizID: ledger.BizID(args[1])}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				n, err := projection.DismissIllegal(ctx, pool, key, actorOr(actor), reason)
				if err != nil {
					return err
				}
				answer := struct {
					Kind   string `json:"kind"`
					BizID  string `json:"biz_id"`
					Events int    `json:"events"`
				}{args[0], args[1], n}
				return a.print(answer, func(w io.Writer) {
					fmt.Fprintf(w, "dismissed %s of %s\n", count(int64(n)), plain(key.String()))
				})
			})
		},
	}
	addActorFlag(cmd, &actor)
	addReasonFlag(cmd, &reason)
	return cmd
}
