package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/workers"
)

func listWorkers(ctx context.Context, a *app, pool *pgxpool.Pool, f showFlags) error {
	all, next, err := readPage(ctx, pool, f.pageFlags, workers.ReadWorkers,
		func(w workers.Worker) string { return w.ID })
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

// shownNames is how many names of workers over HTTP a row shows.
const shownNames = 3

func renderWorkers(w io.Writer, all []workers.Worker) {
	t := newTable([]any{"worker", "state", "since", "kind", "guarantee", "shards", "slots", "running", "overdue",
		"in flight", "per minute"}, 3, 7, 8, 9, 10, 11)
	for _, worker := range all {
		state := green.on("alive")
		if !worker.Alive {
			state = red.on("lost")
		}
		id, since := plain(worker.ID), ago(worker.Since)
		if len(worker.Names) > 0 {
			id += " (" + printable.Names(worker.Names, shownNames) + ")"
		}
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
