package scheduler

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/awaiting.sql
	awaitingSQL string
	//go:embed sql/awaiting_remove.sql
	awaitingRemoveSQL string
)

// pointAwaited is a crash point: tasks have been made available or cancelled, and their timers are still there.
const pointAwaited = "scheduler.awaited"

const (
	// awaitingPage is how many waiting tasks one statement reads.
	awaitingPage = 500
	// awaitingHeads is how many predecessors one statement reads.
	awaitingHeads = 5000
	// awaitingEvery is the least time between two passes while no task waits, and awaitingLeast while some do.
	awaitingEvery = 100 * time.Millisecond
	awaitingLeast = 20 * time.Millisecond
	// awaitingShare: passes take at most one part in awaitingShare of the time.
	awaitingShare = 4
	// awaitingTurn is how long a pass reads the tasks of one kind before it goes on with the next kind.
	awaitingTurn = 50 * time.Millisecond
)

// awaiting makes tasks available whose predecessors have succeeded ([ledger.EnqueueOptions].After), or cancels them.
//
// It reads the tasks that wait, by their timers, and the states of their predecessors. So it is never too late for a
// predecessor that has finished before its successor was enqueued, or while no scheduler ran, and two predecessors that
// finish at the same moment need not know of each other. The append is a compare-and-set on version 1; a timer that is
// left behind is removed by the next pass. Nothing is locked that the end of a task needs.
//
// A pass reads every kind, but no more tasks of a kind than fit into its turn, so that many waiting tasks of one kind
// delay this kind alone. The next pass continues there.
//
// The goroutine of run uses it.
type awaiting struct {
	config Config
	wanted request
	turn   time.Duration                // [awaitingTurn], changed by tests
	places map[ledger.Kind]ledger.BizID // of the kinds that a pass has not read to their end: the last task read
}

func newAwaiting(c Config) awaiting {
	return awaiting{
		config: c, wanted: newRequest(), turn: awaitingTurn, places: make(map[ledger.Kind]ledger.BizID),
	}
}

// successor is a task that waits for its predecessors.
type successor struct {
	key      ledger.Key
	hasMoved bool // it has another event than its first
	after    ledger.After
}

// run works until ctx is done. It logs errors, and retries.
func (a *awaiting) run(ctx context.Context) {
	_ = loop.Steps{ // without Stop it returns nil
		Step: func(ctx context.Context) (time.Duration, error) {
			a.wanted.await(ctx, unasked)
			begun := time.Now()
			n, err := a.pass(ctx)
			if n == 0 {
				return awaitingEvery, err
			}
			a.wanted.ask()
			return max(awaitingLeast, (awaitingShare-1)*time.Since(begun)), err
		},
		Failed: func(ctx context.Context, err error, in time.Duration) {
			a.config.Logger.WarnContext(ctx, "cannot release tasks after their predecessors; retrying",
				"error", err, "retry_in", in)
		},
	}.Run(ctx)
}

// pass reads the tasks that wait, those of each kind for at most a turn, and returns the number of tasks read.
func (a *awaiting) pass(ctx context.Context) (n int, err error) {
	var from ledger.Key
	var faults []error
	turn := time.Now()
	for {
		page, err := a.read(ctx, from)
		if err != nil {
			return n, errors.Join(append(faults, err)...)
		}
		if len(page) > 0 {
			faults = append(faults, a.decide(ctx, page))
		}
		if n += len(page); len(page) < awaitingPage {
			delete(a.places, from.Kind)
			return n, errors.Join(faults...)
		}
		last := page[len(page)-1].key
		switch {
		case last.Kind != from.Kind: // the turn of the page's last kind begins
			delete(a.places, from.Kind)
			from, turn = ledger.Key{Kind: last.Kind, BizID: max(last.BizID, a.places[last.Kind])}, time.Now()
		case time.Since(turn) < a.turn:
			from = last
		default:
			a.places[last.Kind] = last.BizID
			from = ledger.Key{Kind: last.Kind + "\x01"} // before every other kind that follows
		}
	}
}

// read returns the next page of waiting tasks after a key.
func (a *awaiting) read(ctx context.Context, last ledger.Key) (page []successor, err error) {
	batch := &pgx.Batch{}
	batch.Queue(settingsSQL, lockTimeout(batchPatience), "on")
	statement := batch.Queue(awaitingSQL, string(last.Kind), string(last.BizID), int64(awaitingPage))
	statement.Query(func(rows pgx.Rows) error {
		var s successor
		var first ledger.Event
		_, err := pgx.ForEachRow(rows, []any{
			(*string)(&s.key.Kind), (*string)(&s.key.BizID), &s.hasMoved, (*string)(&first.Type),
			(*[]byte)(&first.Meta),
		}, func() error {
			first.Version = 1
			s.after = first.Awaited()
			page = append(page, s)
			first.Meta = nil
			return nil
		})
		return err
	})
	if err := a.config.DB.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("read tasks with predecessors: %w", err)
	}
	return page, nil
}

// decide appends to the tasks of a page that need not wait any longer, and removes the timers of those that have moved.
func (a *awaiting) decide(ctx context.Context, page []successor) error {
	states, err := a.states(ctx, page)
	if err != nil {
		return err
	}
	var requests []ledger.AppendRequest
	var kinds, ids pgarray.Builder
	hasMoved := false
	remove := func(k ledger.Key) {
		kinds.Add(string(k.Kind))
		ids.Add(string(k.BizID))
		hasMoved = true
	}
	for _, s := range page {
		if s.hasMoved {
			remove(s.key)
		} else if r, ok := s.verdict(states); ok {
			requests = append(requests, r)
		}
	}
	var faults []error
	for i, r := range ledger.AppendEach(ctx, a.config.DB, requests) {
		if r.Err == nil || ledger.IsConflict(r.Err) {
			remove(requests[i].Key)
		} else {
			faults = append(faults, r.Err)
		}
	}
	if len(requests) > 0 {
		fault.Point(pointAwaited)
	}
	if hasMoved {
		if _, err := a.config.DB.Exec(ctx, awaitingRemoveSQL, kinds.String(), ids.String()); err != nil {
			faults = append(faults, fmt.Errorf("remove timers: %w", err))
		}
	}
	return errors.Join(faults...)
}

// states returns the states of the predecessors of a page.
func (a *awaiting) states(ctx context.Context, page []successor) (map[ledger.Key]ledger.State, error) {
	all := make(map[ledger.Key]ledger.State)
	var keys []ledger.Key
	for _, s := range page {
		for _, k := range s.after.Keys {
			if _, ok := all[k]; !ok {
				all[k] = ledger.StateNone
				keys = append(keys, k)
			}
		}
	}
	for part := range slices.Chunk(keys, awaitingHeads) {
		states, err := ledger.States(ctx, a.config.DB, part)
		if err != nil {
			return nil, err
		}
		for k, state := range states {
			all[k] = state
		}
	}
	return all, nil
}

// verdict returns the event with which a task ends its wait, if it does. A task whose predecessors cannot be read
// waits for an operator.
func (s successor) verdict(states map[ledger.Key]ledger.State) (ledger.AppendRequest, bool) {
	r := ledger.AppendRequest{Key: s.key, Expected: 1, Actor: "scheduler"}
	finished, succeeded := 0, 0
	for _, k := range s.after.Keys {
		state := states[k]
		if !state.Finished() {
			continue
		}
		finished++
		if state == ledger.StateSucceeded {
			succeeded++
		} else if s.after.Otherwise == ledger.OtherwiseCancel {
			r.Type, r.Data = ledger.EventCancelled, reasonData(fmt.Sprintf("its predecessor %s is %s", k, state))
			return r, true
		}
	}
	n := len(s.after.Keys)
	if n == 0 || succeeded < n && (s.after.Otherwise != ledger.OtherwiseRun || finished < n) {
		return r, false
	}
	r.Type, r.Data = ledger.EventReleased, reasonData("after")
	return r, true
}

// reasonData returns the data of an event with a reason.
func reasonData(reason string) json.RawMessage {
	data, err := json.Marshal(map[string]string{"reason": reason})
	if err != nil { // a string encodes
		panic(err)
	}
	return data
}
