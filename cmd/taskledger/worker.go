package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/workers"
)

func newWorkerCommand(a *app) *cobra.Command {
	return group(
		&cobra.Command{Use: "worker", Short: "Show the worker processes and their shards"},
		newWorkerListCommand(a),
	)
}

func newWorkerListCommand(a *app) *cobra.Command {
	var f pageFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the worker processes with their kinds and shards",
		Long: `List the worker processes with their kinds and shards. A process that ended without a shutdown is
lost: other workers take over its tasks. It is listed for another day. Workers begin no tasks of a
paused kind (taskledger kind resume).

Running counts the slots that handlers hold. Overdue counts handlers that did not return in time: their
tasks continue elsewhere, and their slots stay busy until they return. These numbers, tasks in
flight and attempts per minute are as of the last renewal of the worker's lease, some seconds ago.
Workers in SQL do not report them.`,
		Example: "  taskledger worker list\n  taskledger worker list -o json",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return listWorkers(ctx, a, pool, f)
			})
		},
	}
	f.add(cmd, "workers")
	return a.watchable(cmd)
}

func listWorkers(ctx context.Context, a *app, pool *pgxpool.Pool, f pageFlags) error {
	all, next, err := readPage(ctx, pool, f, workers.ReadWorkersAfter, func(w workers.Worker) string { return w.ID })
	if err != nil {
		return err
	}
	list := struct {
		Workers []workers.Worker `json:"workers"`
		Next    string           `json:"next,omitempty"`
	}{all, next}
	if err := printList(a, list, all, func(w io.Writer) {
		if len(all) > 0 {
			renderWorkers(w, all)
		}
	}); err != nil {
		return err
	}
	if len(all) == 0 {
		fmt.Fprintln(a.stderr, "no workers")
	}
	noteNext(a, next)
	return nil
}

func renderWorkers(w io.Writer, all []workers.Worker) {
	t := newTable([]any{"worker", "state", "since", "kind", "guarantee", "shards", "slots", "running", "overdue",
		"in flight", "per minute"}, 3, 7, 8, 9, 10, 11)
	for _, worker := range all {
		state := "alive"
		if !worker.Alive {
			state = "lost"
		}
		id, since := plain(worker.ID), ago(worker.Since)
		for _, k := range worker.Kinds {
			shards := k.Shards.String()
			if shards == "" {
				shards = "none"
			}
			kind := string(k.Kind)
			if k.Paused {
				kind += " (paused)"
			}
			row := table.Row{id, state, since, kind, k.Guarantee, shards, "-", "-", "-", "-", "-"}
			if l := k.Load; l != nil {
				row = append(row[:6], l.Slots, l.Running, l.Overdue, l.InFlight, fmt.Sprintf("%.1f", l.PerMinute))
			}
			t.AppendRow(row)
			id, state, since = "", "", ""
		}
	}
	renderTable(w, t)
}
