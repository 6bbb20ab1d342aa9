package periodic

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/advance.sql
var advanceSQL string

// Crash points, see internal/fault.
const (
	pointPlanned = "periodic.planned" // between the decision what is due and the first of its tasks
	pointFired   = "periodic.fired"   // between the last of its tasks and the commit
)

// Why a slot's task was discarded at once: data.reason of the event.
const (
	ReasonMissed  = "missed"  // no runner was at work when it was due
	ReasonOverlap = "overlap" // the task of the slot before is unfinished
	ReasonPaused  = "paused"  // the schedule was
	ReasonChanged = "changed" // the schedule was given other times before a runner fired it
)

// discarded is the data of the event discarded.
type discarded struct {
	Reason     string `json:"reason"`
	Slots      int    `json:"slots,omitempty"` // how many the task stands for,
	More       bool   `json:"more,omitempty"`  // or at least that many,
	From       string `json:"from,omitempty"`  // from this one
	To         string `json:"to,omitempty"`    // to this one
	Unfinished string `json:"unfinished,omitempty"`
}

// slotMeta is what a slot's task carries in meta.schedule.
type slotMeta struct {
	Name  string `json:"name"`
	Slot  string `json:"slot,omitempty"`  // when it was due, in UTC
	Zone  string `json:"zone,omitempty"`  // of a cron expression
	Local string `json:"local,omitempty"` // what the clocks there showed
}

// slotKey is the key of a slot's task.
func slotKey(s Schedule, slot time.Time) ledger.Key {
	return ledger.Key{Kind: s.Kind, BizID: ledger.BizID(s.Name + "@" + instant(slot))}
}

// enqueueSlot enqueues the task of a slot. It answers false if there is one already.
func enqueueSlot(ctx context.Context, tx pgx.Tx, s Schedule, slot time.Time) (bool, error) {
	m := slotMeta{Name: s.Name, Slot: instant(slot)}
	if s.Cron != "" {
		zone, err := loadZone(s.Zone)
		if err != nil {
			return false, err
		}
		m.Zone, m.Local = s.Zone, slot.In(zone).Format(time.RFC3339)
	}
	answer, err := enqueue(ctx, tx, s, slotKey(s, slot), "schedule/"+s.Name, m)
	return answer.New, err
}

func enqueue(ctx context.Context, db ledger.DB, s Schedule, k ledger.Key, actor string, m slotMeta) (ledger.Enqueued, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return ledger.Enqueued{}, err
	}
	return ledger.Enqueue(ctx, db, k, s.Args, &ledger.EnqueueOptions{
		Actor: actor, Meta: ledger.Meta{Extra: map[string]json.RawMessage{"schedule": text}},
	})
}

// discardSlot enqueues the task of a slot that does not fire and discards it, if it is new.
func discardSlot(ctx context.Context, tx pgx.Tx, s Schedule, slot time.Time, why discarded) error {
	added, err := enqueueSlot(ctx, tx, s, slot)
	if err != nil || !added {
		return err
	}
	data, err := json.Marshal(why)
	if err != nil {
		return err
	}
	_, err = ledger.Append(ctx, tx, ledger.AppendRequest{
		Key: slotKey(s, slot), Expected: 1, Type: ledger.EventDiscarded, Actor: "schedule/" + s.Name, Data: data,
	})
	return err
}

// carryOut does in tx what the plan for a schedule says, whose row tx has locked. The slots
// that the plan passes over are recorded with the reason.
func carryOut(ctx context.Context, tx pgx.Tx, s Status, p plan, reason string) error {
	fault.Point(pointPlanned)
	count := p.passed.count
	if count > 0 {
		why := discarded{Reason: reason, Slots: count, More: p.passed.more, From: instant(p.passed.from), To: instant(p.passed.to)}
		if err := discardSlot(ctx, tx, s.Schedule, p.passed.to, why); err != nil {
			return err
		}
	}
	var last time.Time
	for _, slot := range p.fire {
		before, err := unfinished(ctx, tx, s)
		if err != nil {
			return err
		}
		if before != "" {
			count++
			if err := discardSlot(ctx, tx, s.Schedule, slot, discarded{Reason: ReasonOverlap, Unfinished: before}); err != nil {
				return err
			}
			continue
		}
		if _, err := enqueueSlot(ctx, tx, s.Schedule, slot); err != nil {
			return err
		}
		key := slotKey(s.Schedule, slot)
		last, s.LastTask = slot, &key
	}
	var kind, id *string
	if !last.IsZero() {
		kind, id = (*string)(&s.LastTask.Kind), (*string)(&s.LastTask.BizID)
	}
	_, err := tx.Exec(ctx, advanceSQL, s.Schedule.Name, optionalTime(p.next), optionalTime(last), kind, id, count)
	return pgerr.Explain("advance schedule "+s.Schedule.Name, err)
}

// unfinished returns the task that keeps the next slot from firing, "" if there is none.
func unfinished(ctx context.Context, tx pgx.Tx, s Status) (string, error) {
	if s.Schedule.Overlap != OverlapSkip || s.LastTask == nil {
		return "", nil
	}
	task, err := ledger.Load(ctx, tx, *s.LastTask)
	switch {
	case errors.Is(err, ledger.ErrUnknownTask): // nobody waits for what is not there
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look at the slot before: %w", err)
	case task.State.Finished():
		return "", nil
	}
	return task.Key.String(), nil
}

// optionalTime is NULL for the zero time.
func optionalTime(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	text := instant(t)
	return &text
}
