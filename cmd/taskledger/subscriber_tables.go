package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/rebuild"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

func rebuildSubscriber(
	ctx context.Context, a *app, pool *pgxpool.Pool, name string, act projector.Act, dryRun bool,
) error {
	if dryRun {
		s, err := subscribers.ReadState(ctx, pool, name)
		if err != nil {
			return unknownSubscriber(err)
		}
		return planRebuild(a, "subscriber", name, s.Version)
	}
	began := time.Now()
	events, err := withProgress(a, "rebuilt", func(show func(done, total int64)) error {
		if err := subscribers.RequestRebuild(ctx, pool, name, act.Actor, act.Reason); err != nil {
			return unknownSubscriber(err)
		}
		work, err := awaitWork(ctx, a, pool, name, rebuild.WorkRebuild, show)
		if err == nil {
			show(work.Done, work.Total)
		}
		return err
	})
	if err != nil {
		return err
	}
	return printRebuilt(a, "subscriber", name, events, time.Since(began))
}

func verifySubscriber(ctx context.Context, a *app, pool *pgxpool.Pool, name string) error {
	var report rebuild.Report
	_, err := withProgress(a, "verified", func(show func(done, total int64)) error {
		if err := subscribers.RequestVerify(ctx, pool, name); err != nil {
			return unknownSubscriber(err)
		}
		work, err := awaitWork(ctx, a, pool, name, rebuild.WorkVerify, show)
		if err != nil {
			return err
		}
		report, err = subscribers.ReadReport(work)
		return err
	})
	if err != nil {
		return err
	}
	return printReport(a, "subscriber", name, report)
}

// awaitWork waits until the program of a subscriber has done work that it was asked for.
func awaitWork(
	ctx context.Context, a *app, pool *pgxpool.Pool, name, work string, show func(done, total int64),
) (rebuild.Work, error) {
	asked, isNoted := time.Now(), false
	for ticker := time.NewTicker(askEvery); ; {
		r, err := subscribers.ReadState(ctx, pool, name)
		if err != nil {
			return rebuild.Work{}, err
		}
		isOurs := r.Work != nil && r.Work.Name == work
		switch {
		case r.Wanted != work && isOurs && r.Work.Result != nil:
			return *r.Work, workFailure(name, *r.Work)
		case isOurs && r.Work.Result == nil:
			show(r.Work.Done, r.Work.Total)
		case !isNoted && time.Since(asked) > notedAfter:
			isNoted = true
			fmt.Fprintf(a.stderr, "waiting for a program of subscriber %s\n", plain(name))
		}
		select {
		case <-ctx.Done():
			return rebuild.Work{}, stoppedWaiting(r, work)
		case <-ticker.C:
		}
	}
}

// stoppedWaiting returns the error of a command that ends before the work that it requested.
func stoppedWaiting(r subscribers.State, work string) error {
	state := "no program has begun it"
	if w := r.Work; w != nil && w.Name == work && w.Result == nil {
		state = fmt.Sprintf("%s of %s events are done", count(w.Done), count(w.Total))
	}
	return failf(exitFailed, "interrupted: the %s of subscriber %s is still asked for: %s", work, plain(r.Name), state).
		hinted("see: taskledger show subscribers")
}

const (
	askEvery   = 200 * time.Millisecond
	notedAfter = 5 * time.Second
)

// workFailure returns the error of work that has failed.
func workFailure(name string, w rebuild.Work) error {
	if text := w.Failure(); text != "" {
		first, _, _ := strings.Cut(text, "\n")
		return failf(exitFailed, "%s of subscriber %s: %s", w.Name, name, first).
			hinted("see: taskledger show subscribers; correct the cause, and run it again")
	}
	return nil
}

func listSubscriberParked(ctx context.Context, a *app, pool *pgxpool.Pool, f showFlags) error {
	after, err := parseEventPlace(f.after)
	if err != nil {
		return err
	}
	all, next, err := cutPage(f.limit, func(limit int) ([]subscribers.Parked, error) {
		return subscribers.ReadParked(ctx, pool, f.subscriber, subscribers.EventName(after), limit)
	}, func(p subscribers.Parked) string { return eventPlace(p.Key, p.Version) })
	if err != nil {
		return err
	}
	list := struct {
		Parked []subscribers.Parked `json:"parked"`
		Next   string               `json:"next,omitempty"`
	}{all, next}
	if len(all) == 0 {
		fmt.Fprintln(a.stderr, "no parked events")
	}
	noteNext(a, next)
	return printList(a, list, all, func(w io.Writer) {
		if len(all) == 0 {
			return
		}
		t := newTable([]any{"position", "task", "version", "state", "failures", "parked", "error"}, 1, 3, 5)
		for _, p := range all {
			text, _, _ := strings.Cut(p.Error, "\n")
			if text == "" {
				text = "(an earlier event of the task is parked)"
			}
			t.AppendRow(table.Row{
				p.Position, plain(p.Key.String()), p.Version, p.State, p.Failures, ago(p.ParkedAt),
				shorten(text, 100),
			})
		}
		renderTable(w, t)
	})
}

// awaitRetry waits until the program of a subscriber has retried the parked events of a task, and returns their
// new state. It returns an error if one of them has failed again.
func awaitRetry(ctx context.Context, db ledger.DB, name string, k ledger.Key, wait time.Duration) (string, error) {
	for deadline := time.Now().Add(wait); ; {
		left, err := subscribers.ReadParkedOf(ctx, db, name, k)
		left = slices.DeleteFunc(left, func(p subscribers.Parked) bool { return p.State == "discarded" })
		failed := slices.IndexFunc(left, func(p subscribers.Parked) bool { return p.Error != "" })
		switch {
		case err != nil:
			return "", err
		case len(left) == 0:
			return "handled", nil
		case left[0].State == "parked" && failed >= 0:
			text, _, _ := strings.Cut(left[failed].Error, "\n")
			return "", failf(exitFailed, "the event at position %d has failed again (failures: %d): %s",
				left[failed].Position, left[failed].Failures, text).
				hinted("correct the program of the subscriber; or: "+
					"taskledger discard parked --subscriber %s %s %s", name, k.Kind, k.BizID)
		case time.Now().After(deadline):
			return "to be retried when a program of subscriber " + name + " finds them", nil
		}
		if err := loop.Sleep(ctx, askEvery); err != nil {
			return "", err
		}
	}
}

// countUnhandled returns the number of events of a task that a subscriber has parked, or at which it has stopped.
func countUnhandled(ctx context.Context, db relays.DB, name string, key ledger.Key, _, _ string) (int, error) {
	s, err := subscribers.ReadState(ctx, db, name)
	if err != nil {
		return 0, err
	}
	parked, err := subscribers.ReadParkedOf(ctx, db, name, key)
	if err != nil {
		return 0, err
	}
	n := len(parked)
	if n == 0 && s.Failing != nil && s.Failing.Key == key {
		n = 1
	}
	if n == 0 {
		return 0, fmt.Errorf("subscriber %s: no event of %s has failed: %w", name, key, subscribers.ErrNotParked)
	}
	return n, nil
}
