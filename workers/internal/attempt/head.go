package attempt

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/heads.sql
var headsSQL string

// largeArgs replaces args that are too large to be read with a head. It is not valid JSON.
const largeArgs = "large"

// Head is the last event of a task, with facts about the offered event.
type Head struct {
	IsFound    bool // the task exists
	HasArgs    bool // Args and Meta contain the handler's input as the ledger stores it
	Version    ledger.Version
	Type       ledger.EventType
	Actor      string
	Attempt    ledger.Attempt
	Shard      ledger.Shard
	Priority   ledger.Priority
	IsOrdered  bool          // the task is in a line
	RecordedAt time.Time     // of the offered event; zero: it is not in the ledger
	Clock      time.Time     // of the database, when the head was read
	Alive      time.Duration // how much longer the actor's lease lasts; 0 if it has expired or does not exist

	// Args and Meta are the task's, as stored, if the offer lacks them. Args are empty unless HasArgs.
	Args, Meta json.RawMessage
	// Read is set unless it is unknown in which incarnation of the database the head was read.
	Read *Read
}

// Read is the part of a head that most tasks of a batch share.
type Read struct {
	Incarnation string // of the database and its server when the head was read
	Partition   string // of the task
	OrderKey    string // of the task, unless it is unknown: see Head.IsOrdered
}

// In returns the same with another partition and order key.
func (r *Read) In(partition, orderKey string) *Read {
	if r == nil || r.Partition == partition && r.OrderKey == orderKey {
		return r
	}
	return &Read{r.Incarnation, partition, orderKey}
}

// Heads reads the heads of tasks from the primary, in one round trip and in the order of tasks. It may use the memory
// of space. It reads missing args as far as room, in bytes, allows.
func (k *Kind) Heads(ctx context.Context, tasks []*Task, room int, space []Head) ([]Head, error) {
	var ids, versions pgarray.Builder
	ids.Grow(len(tasks), 36*len(tasks))
	versions.Grow(len(tasks), 0)
	lacking := 0
	for _, t := range tasks {
		ids.Add(string(t.Message.BizID))
		versions.AddInt(int64(t.Message.Version))
		if t.LacksArgs {
			lacking++
		}
	}
	limit := -1
	if lacking > 0 {
		limit = max(0, room) / lacking
	}
	rows, err := k.db.Query(ctx, headsSQL, string(k.Name), ids.String(), versions.String(), int64(limit))
	if err != nil {
		return nil, fmt.Errorf("read heads: %w", err)
	}
	defer rows.Close()
	heads := slices.Grow(space[:0], len(tasks))[:len(tasks)]
	clear(heads)
	var i int32
	var h Head
	var args, meta pgquery.Borrowed
	var alive int64
	var isAwaited bool
	var first string // the incarnation, in the first row
	var partition pgquery.Repeated
	var read *Read
	columns := []any{
		&i, (*int32)(&h.Version), (*pgquery.Repeated)(&h.Type), (*int32)(&h.Attempt), (*pgquery.Repeated)(&h.Actor),
		pgquery.Micros(&h.RecordedAt),
		&alive, pgquery.Micros(&h.Clock), &args, &meta, &isAwaited,
		(*int)(&h.Shard), (*int)(&h.Priority), &partition, &h.IsOrdered, &first,
	}
	for rows.Next() {
		h = Head{IsFound: true, Type: h.Type, Actor: h.Actor}
		if err := rows.Scan(columns...); err != nil {
			return nil, fmt.Errorf("read heads: %w", err)
		}
		if tasks[i-1].LacksArgs {
			h.HasArgs = string(args) != largeArgs
			h.Meta = slices.Clone(json.RawMessage(meta))
			if h.HasArgs {
				h.Args = slices.Clone(json.RawMessage(args))
			}
		}
		h.Alive = time.Duration(alive) * time.Millisecond
		if first != "" {
			read = &Read{Incarnation: first}
		}
		read = read.In(string(partition), "")
		h.Read = read
		heads[i-1] = h
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read heads: %w", err)
	}
	k.completer.setAwaited(isAwaited)
	return heads, nil
}

// Verdict is the decision about an offered task.
type Verdict int

// The verdicts.
const (
	RefuseGhost Verdict = iota // the offered event is not in the ledger
	Drop                       // nothing to do: the task is finished, or a later event will be offered
	Begin                      // no attempt has begun
	ClaimFirst                 // an attempt may have begun: the start is recorded before the handler runs
	PermitFirst                // no attempt has begun: permits are taken before the handler runs
	Resume                     // this process began, and could not record an outcome
	Wait                       // another worker runs the task
	TakeOver                   // another worker ran the task and is gone
	Vanished                   // an attempt that must not be repeated has vanished
)

// Decide returns the verdict on an offered task, by its head. self is the ID of this worker. isAgain: the task may
// have begun elsewhere. An offered event that is not in the ledger comes from a past that a fail-over or a restore has
// undone.
func Decide(m stream.Message, isAgain bool, h Head, self string) Verdict {
	if !h.IsFound || !h.RecordedAt.Equal(m.RecordedAt) {
		return RefuseGhost
	}
	switch h.Type.State() {
	case ledger.StateAvailable:
		if isAgain {
			return ClaimFirst
		}
		return Begin
	case ledger.StateRunning:
		switch {
		case h.Actor == self:
			return Resume
		case h.Alive > 0:
			return Wait
		}
		return TakeOver
	case ledger.StateNone, ledger.StateScheduled, ledger.StateInLine, ledger.StateRetrying,
		ledger.StateSucceeded, ledger.StateDead, ledger.StateCancelled, ledger.StateExpired, ledger.StateDiscarded:
		return Drop
	}
	return Drop
}

// Once returns the verdict for a kind whose attempts must not be repeated: the start is always recorded first, and an
// attempt that has begun is not repeated. isUndone: an attempt has begun here, and the database has lost its start.
func (v Verdict) Once(isUndone bool) Verdict {
	switch v {
	case Begin, ClaimFirst:
		if isUndone {
			return Vanished
		}
		return ClaimFirst
	case Resume, TakeOver:
		return Vanished
	default:
		return v
	}
}
