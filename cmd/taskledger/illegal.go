package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"

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

// discardIllegal removes the illegal events of a task from the list.
func discardIllegal(ctx context.Context, a *app, args []string, actor, reason string) error {
	key := ledger.Key{Kind: ledger.Kind(args[0]), BizID: ledger.BizID(args[1])} // it may be invalid
	return a.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
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
			fmt.Fprintf(w, "discarded: %s of %s\n", count(int64(n)), plain(key.String()))
		})
	})
}
