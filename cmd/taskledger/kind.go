package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

// changeKind pauses or resumes a kind, and prints whether that was a change.
func (a *app) changeKind(ctx context.Context, pool *pgxpool.Pool, kind, done, unchanged string,
	change func(*operator.Operator) (bool, error)) error {
	changed, err := change(operator.New(pool))
	if err != nil {
		return err
	}
	if err := a.noteUnknownKind(ctx, pool, ledger.Kind(kind)); err != nil {
		return err
	}
	answer := struct {
		Kind    string `json:"kind"`
		Changed bool   `json:"changed"`
	}{kind, changed}
	return a.print(answer, func(w io.Writer) {
		if changed {
			fmt.Fprintf(w, "%s %s\n", done, plain(kind))
		} else {
			fmt.Fprintf(w, "%s %s\n", plain(kind), unchanged)
		}
	})
}

// listedKind is a row of the list of kinds.
type listedKind struct {
	Kind    ledger.Kind            `json:"kind"`
	Tasks   map[ledger.State]int64 `json:"tasks"`
	Workers int64                  `json:"workers"` // live
	Paused  *operator.PausedKind   `json:"paused,omitempty"`
}

// readKinds returns at most limit kinds, the first ones after a kind, by name.
func readKinds(ctx context.Context, db ledger.DB, after ledger.Kind, limit int) ([]listedKind, error) {
	counts, err1 := projector.ReadCounts(ctx, db, after, limit)
	live, err2 := workers.ReadLiveCounts(ctx, db)
	paused, err3 := operator.ReadPaused(ctx, db, after, limit)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	kinds := make(map[ledger.Kind]*listedKind)
	get := func(kind ledger.Kind) *listedKind {
		k := kinds[kind]
		if k == nil {
			k = &listedKind{Kind: kind, Tasks: make(map[ledger.State]int64), Workers: live[kind]}
			kinds[kind] = k
		}
		return k
	}
	for _, c := range counts {
		get(c.Kind).Tasks[c.State] = c.Tasks
	}
	for i, p := range paused {
		get(p.Kind).Paused = &paused[i]
	}
	for kind := range live {
		if kind > after {
			get(kind)
		}
	}
	var page []listedKind
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if len(page) < limit {
			page = append(page, *kinds[kind])
		}
	}
	return page, nil
}

func listKinds(ctx context.Context, a *app, pool *pgxpool.Pool, f showFlags) error {
	kinds, next, err := readPage(ctx, pool, f.pageFlags, readKinds, func(k listedKind) ledger.Kind { return k.Kind })
	if err != nil {
		return err
	}
	list := struct {
		Kinds []listedKind `json:"kinds"`
		Next  ledger.Kind  `json:"next,omitempty"`
	}{kinds, next}
	if err := printList(a, list, kinds, func(w io.Writer) {
		if len(kinds) > 0 {
			renderKinds(w, kinds)
		}
	}); err != nil {
		return err
	}
	if len(kinds) == 0 {
		fmt.Fprintln(a.stderr, "no kind has tasks or workers, or is paused")
	}
	noteNext(a, next)
	return nil
}

func renderKinds(w io.Writer, kinds []listedKind) {
	states := []ledger.State{
		ledger.StateAvailable, ledger.StateRunning, ledger.StateRetrying, ledger.StateScheduled, ledger.StateDead,
	}
	header := []any{"kind"}
	for _, s := range states {
		header = append(header, string(s))
	}
	t := newTable(append(header, "workers", "paused", "by", "reason"), 2, 3, 4, 5, 6, 7)
	for _, k := range kinds {
		row := table.Row{plain(string(k.Kind))}
		for _, s := range states {
			row = append(row, statePaints[string(s)].number(k.Tasks[s]))
		}
		row = append(row, count(k.Workers))
		if p := k.Paused; p != nil {
			row = append(row, ago(p.Since), plain(p.Actor), plain(p.Reason))
		} else {
			row = append(row, "", "", "")
		}
		t.AppendRow(row)
	}
	renderTable(w, t)
}

// noteUnknownKind writes a note if a kind has neither a task nor a live worker: its name may be a mistake.
func (a *app) noteUnknownKind(ctx context.Context, db ledger.DB, kind ledger.Kind) error {
	tasks, _, err1 := projector.ReadTasks(ctx, db, projector.TaskFilter{Kind: kind, Limit: 1})
	live, err2 := workers.ReadLiveCounts(ctx, db)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if len(tasks) == 0 && live[kind] == 0 {
		fmt.Fprintf(a.stderr, "warning: %s has neither tasks nor workers; taskledger show kinds shows the kinds\n",
			plain(string(kind)))
	}
	return nil
}
