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
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/advance.sql
	advanceSQL string
	//go:embed sql/first_actor.sql
	firstActorSQL string
)

// Crash points, see internal/fault.
const (
	pointPlanned = "periodic.planned" // between the plan and the first of its tasks
	pointFired   = "periodic.fired"   // between the last of its tasks and the commit
)

// Reasons for which the task of a firing is discarded at once: data.reason of the event discarded.
const (
	reasonMissed  = "missed"  // no runner was at work when the firing was due
	reasonOverlap = "overlap" // the task of the previous firing was unfinished
	reasonPaused  = "paused"  // the schedule was paused
	reasonChanged = "changed" // the times of the schedule changed before a runner fired it
)

// discardData is the data of the event discarded.
type discardData struct {
	Reason     string `json:"reason"`
	Firings    int    `json:"firings,omitempty"` // the number of firings that the task stands for,
	More       bool   `json:"more,omitempty"`    // or more than that,
	From       string `json:"from,omitempty"`    // from the first
	To         string `json:"to,omitempty"`      // to the last
	Unfinished string `json:"unfinished,omitempty"`
}

// firingMeta is meta.schedule of the tasks of a schedule.
type firingMeta struct {
	Name   string `json:"name"`
	Firing string `json:"firing,omitempty"` // when it was due, in UTC
	Zone   string `json:"zone,omitempty"`   // of a cron expression
	Local  string `json:"local,omitempty"`  // the firing on the wall clock of the zone
}

// firingKey returns the key of a firing's task.
func firingKey(s Schedule, firing time.Time) ledger.Key {
	return ledger.Key{Kind: s.Kind, BizID: ledger.BizID(s.Name + "@" + instant(firing))}
}

// enqueueFiring enqueues the task of a firing. It reports whether the task is new.
func enqueueFiring(ctx context.Context, tx pgx.Tx, s Schedule, firing time.Time) (bool, error) {
	m := firingMeta{Name: s.Name, Firing: instant(firing)}
	if s.Cron != "" {
		zone, err := loadZone(s.Zone)
		if err != nil {
			return false, err
		}
		m.Zone, m.Local = s.Zone, firing.In(zone).Format(time.RFC3339)
	}
	answer, err := enqueue(ctx, tx, s, firingKey(s, firing), firingActor(s), m)
	return answer.New, err
}

func enqueue(
	ctx context.Context, db ledger.DB, s Schedule, k ledger.Key, actor string, m firingMeta,
) (ledger.Enqueued, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return ledger.Enqueued{}, err
	}
	return ledger.Enqueue(reserved.Allow(ctx), db, k, s.Args, &ledger.EnqueueOptions{
		Actor: actor, Meta: ledger.Meta{Extra: map[string]json.RawMessage{"schedule": text}},
		IfExists: ledger.IfExistsIgnore, // a schedule is changed, and has fired before
	})
}

// discardFiring enqueues the task of a firing that is passed over and, if the task is new, discards it.
func discardFiring(ctx context.Context, tx pgx.Tx, s Schedule, firing time.Time, why discardData) error {
	added, err := enqueueFiring(ctx, tx, s, firing)
	if err != nil || !added {
		return err
	}
	data, err := json.Marshal(why)
	if err != nil {
		return err
	}
	_, err = ledger.Append(ctx, tx, ledger.AppendRequest{
		Key: firingKey(s, firing), Expected: 1, Type: ledger.EventDiscarded, Actor: firingActor(s), Data: data,
	})
	return err
}

// isFiring reports whether the task with a firing's key was enqueued for the schedule. Only taskledger can enqueue a
// task with this actor.
func isFiring(ctx context.Context, tx pgx.Tx, s Schedule, k ledger.Key) (bool, error) {
	var actor string
	isFound, err := pgquery.Row(ctx, tx, firstActorSQL, []any{string(k.Kind), string(k.BizID)}, &actor)
	return isFound && actor == firingActor(s), pgerr.Explain("read the task of a firing", err)
}

// firingActor returns the actor of a schedule's firings.
func firingActor(s Schedule) string { return reserved.FiringActorPrefix + s.Name }

// execute executes the plan for a schedule that tx has locked. It records the firings that the plan passes over with
// the reason. If a firing's key belongs to another's task, the firing counts as passed over, and execute returns the
// key.
func execute(ctx context.Context, tx pgx.Tx, s Status, p plan, reason string) (taken []ledger.Key, err error) {
	fault.Point(pointPlanned)
	passedCount := p.passed.count
	if passedCount > 0 {
		why := discardData{
			Reason: reason, Firings: passedCount, More: p.passed.more,
			From: instant(p.passed.from), To: instant(p.passed.to),
		}
		if err := discardFiring(ctx, tx, s.Schedule, p.passed.to, why); err != nil {
			return nil, err
		}
	}
	var last time.Time
	for _, firing := range p.fire {
		blocker, err := findBlocker(ctx, tx, s)
		if err != nil {
			return nil, err
		}
		if blocker != "" {
			passedCount++
			why := discardData{Reason: reasonOverlap, Unfinished: blocker}
			if err := discardFiring(ctx, tx, s.Schedule, firing, why); err != nil {
				return nil, err
			}
			continue
		}
		key := firingKey(s.Schedule, firing)
		added, err := enqueueFiring(ctx, tx, s.Schedule, firing)
		if err != nil {
			return nil, err
		}
		if !added {
			isOwn, err := isFiring(ctx, tx, s.Schedule, key)
			if err != nil {
				return nil, err
			}
			if !isOwn {
				passedCount++
				taken = append(taken, key)
				continue
			}
		}
		last, s.LastTask = firing, &key
	}
	var kind, id *string
	if !last.IsZero() {
		kind, id = (*string)(&s.LastTask.Kind), (*string)(&s.LastTask.BizID)
	}
	_, err = tx.Exec(ctx, advanceSQL, s.Schedule.Name, optionalTime(p.next), optionalTime(last), kind, id, passedCount)
	return taken, pgerr.Explain("advance schedule "+s.Schedule.Name, err)
}

// findBlocker returns the unfinished task that causes the next firing to be passed over. It returns "" if the firing
// may become a task.
func findBlocker(ctx context.Context, tx pgx.Tx, s Status) (string, error) {
	if s.Schedule.Overlap != OverlapSkip || s.LastTask == nil {
		return "", nil
	}
	task, err := ledger.Load(ctx, tx, *s.LastTask)
	switch {
	case errors.Is(err, ledger.ErrUnknownTask): // a task that was removed blocks no firing
		return "", nil
	case err != nil:
		return "", fmt.Errorf("load the task of the previous firing: %w", err)
	case task.State.Finished():
		return "", nil
	}
	return task.Key.String(), nil
}

// optionalTime returns NULL for the zero time.
func optionalTime(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	text := instant(t)
	return &text
}
