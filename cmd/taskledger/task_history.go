package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger"
)

func newTaskHistoryCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "history KIND BIZ_ID",
		Short: "Show all events of a task, oldest first",
		Example: "  taskledger task history coupon.send order-17\n" +
			"  taskledger task history coupon.send/order-17 -o jsonl",
		Args: keyArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := parseKey(args)
			if err != nil {
				return err
			}
			return showHistory(cmd.Context(), a, key)
		},
	}
}

func showHistory(ctx context.Context, a *app, key ledger.Key) error {
	pool, err := a.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	events, err := ledger.History(ctx, pool, key)
	if err != nil {
		return unknownTask(err, key)
	}
	list := struct {
		Events []ledger.Event `json:"events"`
	}{events}
	return printList(a, list, events, func(w io.Writer) {
		fmt.Fprintln(w, plain(key.String()))
		t := newTable([]any{"version", "event", "attempt", "when", "after", "actor", "login", "data"}, 1, 3, 4, 5)
		for i, e := range events {
			after := ""
			if i > 0 {
				after = age(e.RecordedAt.Sub(events[i-1].RecordedAt))
			}
			t.AppendRow(table.Row{e.Version, e.Type, e.Attempt, ago(e.RecordedAt), after, plain(e.Actor),
				plain(e.Login), shorten(string(e.Data), 60)})
		}
		renderTable(w, t)
	})
}
