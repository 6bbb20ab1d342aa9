package dispatcher

import (
	"context"
	_ "embed"
	"encoding/json"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/advance_lines.sql
var advanceLinesSQL string

const (
	// maxLines is how many lines one transaction advances.
	maxLines = 500
	// linePatience is how long a group of lines waits for a task that another transaction has locked. Each half of the
	// group then waits half as long, but at least minLinePatience. A locked line is tried again after lineRetry.
	linePatience    = 200 * time.Millisecond
	minLinePatience = 10 * time.Millisecond
	lineRetry       = time.Second
	// lineStall is how long a process that is stopped or cut off can hold the lock of the turns.
	lineStall = 5 * time.Second
	// lineCursorEvery is the least time between two cursor rows after pages with order keys, and linePlainEvery after
	// other pages. The archive keeps tasks with order keys that the cursor has not passed.
	lineCursorEvery = 250 * time.Millisecond
	linePlainEvery  = 30 * time.Second
)

// pointTurns is reached in the transaction that gives turns, before its commit.
const pointTurns = "dispatcher.turns"

// lines gives the tasks in line their turns: see [ledger.EnqueueOptions].OrderKey. It follows the events of the ledger
// and advances each line in which an event may have ended a turn, or is of a task that lined up.
// Advancing a line again changes nothing, so pages may be repeated: after a stop, it continues at its
// cursor. Another dispatcher may do the same at once.
//
// The goroutine of run uses it.
type lines struct {
	db    *pgxpool.Pool
	found *feed.Findings
	turns *turns
	wake  *feed.Wake
	log   *slog.Logger

	locked  []string // order keys to be tried again at retryAt
	retryAt time.Time
	saved   time.Time // when the last cursor row was appended
	isOwed  bool      // pages since then had order keys
}

// run advances lines until ctx is done. It logs errors, and retries.
func (l *lines) run(ctx context.Context) error {
	return loop.Steps{
		Step: func(ctx context.Context) (time.Duration, error) { return 0, l.follow(ctx) },
		Failed: func(ctx context.Context, err error, in time.Duration) {
			l.log.WarnContext(ctx, "cannot advance lines; retrying", "error", err, "retry_in", in)
		},
	}.Run(ctx)
}

// follow advances lines until an error.
func (l *lines) follow(ctx context.Context) error {
	reader, err := feed.Open(ctx, l.db, feed.LineReader, &feed.Options{
		Follows: l.found, Relaxed: true, AuditEvery: -1, Idle: renewEvery, Logger: l.log,
	})
	if err != nil {
		return err
	}
	l.locked, l.saved, l.isOwed = nil, time.Now(), false
	var last feed.Page // with events
	for {
		var latest time.Time
		switch {
		case len(l.locked) > 0:
			latest = l.retryAt
		case l.isOwed:
			latest = l.saved.Add(lineCursorEvery)
		}
		page, err := reader.LookBy(ctx, latest)
		if err != nil {
			return err
		}
		if err := l.discardArchived(ctx, page.Events); err != nil {
			return err
		}
		keys := changedLines(page.Events)
		hasEvents := len(page.Events) > 0
		if hasEvents {
			last = page
			l.isOwed = l.isOwed || hasOrderKey(page.Events)
		}
		page.Release()
		if len(l.locked) > 0 && !time.Now().Before(l.retryAt) {
			keys = append(keys, l.locked...)
			l.locked = nil
		}
		if err := l.advance(ctx, keys, linePatience); err != nil {
			return err
		}
		every := linePlainEvery
		if l.isOwed {
			every = lineCursorEvery
		}
		// The cursor stays where it is while a line is locked, so that the line is not forgotten.
		if (hasEvents || l.isOwed) && len(l.locked) == 0 && time.Since(l.saved) >= every {
			if err := last.Advance(ctx, nil, nil); err != nil {
				return err
			}
			l.saved, l.isOwed = time.Now(), false
		}
	}
}

func hasOrderKey(events []ledger.Event) bool {
	return slices.ContainsFunc(events, func(e ledger.Event) bool { return e.OrderKey != "" })
}

// changedLines returns the order keys of the events that may have ended a turn, or lined up a task.
func changedLines(events []ledger.Event) []string {
	var keys []string
	var seen map[string]bool
	for i := range events {
		e := &events[i]
		if e.OrderKey == "" || seen[e.OrderKey] {
			continue
		}
		state := e.Type.State()
		if state != ledger.StateInLine && !state.Finished() && (e.Type != ledger.EventScheduled || e.Version == 1) {
			continue
		}
		if seen == nil {
			seen = make(map[string]bool)
		}
		seen[e.OrderKey] = true
		keys = append(keys, e.OrderKey)
	}
	return keys
}

// advance advances lines. It keeps the lines that another transaction has locked, to try them again.
func (l *lines) advance(ctx context.Context, keys []string, patience time.Duration) error {
	for group := range slices.Chunk(keys, maxLines) {
		err := l.advanceGroup(ctx, group, patience)
		if !pgerr.Is(err, pgerr.LockNotAvailable) && !pgerr.Is(err, pgerr.DeadlockDetected) {
			if err != nil {
				return err
			}
			continue
		}
		if len(group) == 1 {
			if len(l.locked) == 0 {
				l.retryAt = time.Now().Add(lineRetry)
			}
			l.locked = append(l.locked, group[0])
			continue
		}
		for half := range slices.Chunk(group, (len(group)+1)/2) {
			if err := l.advance(ctx, half, max(patience/2, minLinePatience)); err != nil {
				return err
			}
		}
	}
	return nil
}

// advanceGroup advances lines in a transaction.
func (l *lines) advanceGroup(ctx context.Context, keys []string, patience time.Duration) error {
	begin := "begin isolation level read committed; set local lock_timeout to " +
		strconv.FormatInt(patience.Milliseconds(), 10) + "; set local idle_in_transaction_session_timeout to " +
		strconv.FormatInt(lineStall.Milliseconds(), 10)
	var positions []ledger.Position
	err := pgx.BeginTxFunc(ctx, l.db, pgx.TxOptions{BeginQuery: begin}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, advanceLinesSQL, pgarray.Of(keys...), int64(maxContent))
		if err != nil {
			return err
		}
		var turn ledger.Event
		var recorded int64
		var args *string
		var meta string
		_, err = pgx.ForEachRow(rows, []any{(*int64)(&turn.Position), &recorded, &args, &meta}, func() error {
			positions = append(positions, turn.Position)
			if args != nil {
				e := ledger.Event{Type: ledger.EventReleased, RecordedAt: time.UnixMicro(recorded).UTC(),
					Data: json.RawMessage(*args), Meta: json.RawMessage(meta)}
				l.turns.add(turn.Position, contentOf(&e))
			}
			return nil
		})
		fault.Point(pointTurns)
		return err
	})
	if err != nil {
		l.turns.remove(positions)
	} else if len(positions) > 0 {
		l.wake.Signal()
	}
	return pgerr.Explain("advance lines", err)
}

// maxTurns is the number of turns whose contents wait for their events.
const maxTurns = 10_000

// turns contains the contents of the tasks whose turns this process has appended, until the feed delivers these events.
// A worker reads the args of other turns. It is safe for concurrent use.
type turns struct {
	mu       sync.Mutex
	contents map[ledger.Position][]byte
}

// add adds the content of a turn that is about to be committed.
func (t *turns) add(p ledger.Position, content []byte) {
	if content == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.contents == nil {
		t.contents = make(map[ledger.Position][]byte)
	}
	if len(t.contents) < maxTurns {
		t.contents[p] = content
	}
}

// remove forgets turns that may not have been committed.
func (t *turns) remove(all []ledger.Position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range all {
		delete(t.contents, p)
	}
}

// take returns the content of a turn, or nil, and forgets it.
func (t *turns) take(p ledger.Position) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	content := t.contents[p]
	delete(t.contents, p)
	return content
}
