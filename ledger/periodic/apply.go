package periodic

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/lock.sql
	lockSQL string
	//go:embed sql/lock_one.sql
	lockOneSQL string
	//go:embed sql/now.sql
	nowSQL string
	//go:embed sql/put.sql
	putSQL string
)

// DB is where schedules are changed: a *pgxpool.Pool, a *pgx.Conn, or a pgx.Tx, of which the change
// then is a part.
type DB interface {
	ledger.DB
	Begin(ctx context.Context) (pgx.Tx, error)
}

// ApplyOptions says more about [Apply]. Nil means all defaults.
type ApplyOptions struct {
	Prune  bool   // delete the schedules that were not given
	DryRun bool   // find out what would change, and change nothing
	Actor  string // who does it; empty: the database's session_user
}

// Action is what [Apply] does with a schedule.
type Action string

// The actions.
const (
	Create Action = "create"
	Change Action = "change"
	Delete Action = "delete"
	Keep   Action = "keep" // it is as it should be
)

// Difference is what [Apply] did with a schedule, or would do.
type Difference struct {
	Name   string  `json:"name"`
	Action Action  `json:"action"`
	Fields []Field `json:"fields,omitempty"` // that differ, but for Delete and Keep
}

// Field is one that differs, as JSON has it; "" where it is not given.
type Field struct {
	Name string `json:"field"`
	From string `json:"from"`
	To   string `json:"to"`
}

// Apply makes the schedules those that are wanted, and answers what is different, by name: all
// of it or, with an error, nothing. A schedule that exists keeps its position unless it is to be
// due at other times; then it goes on from now. Whether it is paused is not Apply's business.
//
// As part of a transaction of the caller's, until that ends: other calls of Apply wait, and the schedules
// that differ do not fire; all others go on.
//
// Errors: every [*ledger.InvalidError] there is, of all schedules, also for args that the ledger
// would refuse when a slot fires.
func Apply(ctx context.Context, db DB, want []Schedule, o *ApplyOptions) ([]Difference, error) {
	if o == nil {
		o = &ApplyOptions{}
	}
	if err := validateAll(want); err != nil {
		return nil, err
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return nil, pgerr.Explain("apply schedules", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // after the commit it does nothing
	if _, err := tx.Exec(ctx, lockSQL); err != nil {
		return nil, pgerr.Explain("apply schedules", err)
	}
	found, err := List(ctx, tx)
	if err != nil {
		return nil, err
	}
	differences := make([]Difference, 0, len(want))
	for _, s := range want {
		d, err := apply(ctx, tx, find(found, s.Name), s.withDefaults(), o.Actor)
		if err != nil {
			return nil, err
		}
		differences = append(differences, d)
	}
	for _, f := range found {
		given := slices.ContainsFunc(want, func(s Schedule) bool { return s.Name == f.Schedule.Name })
		if given || !o.Prune {
			continue
		}
		if err := Remove(ctx, tx, f.Schedule.Name, o.Actor); err != nil {
			return nil, err
		}
		differences = append(differences, Difference{Name: f.Schedule.Name, Action: Delete})
	}
	slices.SortFunc(differences, func(a, b Difference) int { return strings.Compare(a.Name, b.Name) })
	if o.DryRun {
		return differences, nil
	}
	return differences, pgerr.Explain("apply schedules", tx.Commit(ctx))
}

func validateAll(want []Schedule) error {
	var faults []error
	names := make(map[string]bool)
	for _, s := range want {
		_, wrong := s.compile()
		if names[s.Name] {
			wrong = append(wrong, invalid("name", s.Name, "must be given once"))
		}
		names[s.Name] = true
		for _, fault := range wrong {
			faults = append(faults, fmt.Errorf("schedule %q: %w", s.Name, fault))
		}
	}
	return errors.Join(faults...)
}

func find(all []Status, name string) *Status {
	i := slices.IndexFunc(all, func(s Status) bool { return s.Schedule.Name == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// apply makes one schedule, which has its defaults, what it should be.
func apply(ctx context.Context, tx pgx.Tx, old *Status, s Schedule, actor string) (Difference, error) {
	d := Difference{Name: s.Name, Action: Create}
	if old != nil && len(differing(old.Schedule, s)) == 0 {
		return Difference{Name: s.Name, Action: Keep}, nil
	}
	old, now, err := hold(ctx, tx, s.Name)
	if err != nil {
		return d, err
	}
	next := first(s, now)
	if old != nil {
		d.Action = Change
		d.Fields = differing(old.Schedule, s)
		if sameTimes(old.Schedule, s) {
			next = old.NextAt
		} else if err := passOverDue(ctx, tx, *old, now, ReasonChanged); err != nil {
			return d, err
		} else if s.After != 0 && old.LastTask != nil {
			next = time.Time{} // the runner looks whether the task before has finished
		}
	} else {
		d.Fields = differing(Schedule{Name: s.Name}, s)
	}
	if err := tryOut(ctx, tx, s, now); err != nil {
		return d, err
	}
	_, err = tx.Exec(ctx, putSQL, s.Name, string(s.Kind), optional(string(s.Args)), optional(s.Cron), optional(s.Zone),
		milliseconds(s.Every), optional(instant(s.Anchor)), milliseconds(s.After), string(s.Missed), s.MissedLimit,
		string(s.Overlap), optional(actor), optionalTime(next))
	if err == nil {
		err = record(ctx, tx, d, actor, now)
	}
	return d, pgerr.Explain("apply schedule "+s.Name, err)
}

// hold locks a schedule and returns it as it stands, nil if there is none, and what time it is.
func hold(ctx context.Context, tx pgx.Tx, name string) (s *Status, now time.Time, err error) {
	if _, err := tx.Exec(ctx, lockOneSQL, name); err != nil {
		return nil, now, pgerr.Explain("lock schedule "+name, err)
	}
	if err := tx.QueryRow(ctx, nowSQL).Scan(&now); err != nil {
		return nil, now, pgerr.Explain("lock schedule "+name, err)
	}
	found, _, err := list(ctx, tx, name)
	if err != nil || len(found) == 0 {
		return nil, now.UTC(), err
	}
	return &found[0], now.UTC(), nil
}

// first returns the first slot of a schedule that begins now.
func first(s Schedule, now time.Time) time.Time {
	due, _ := s.compile() // which is valid
	if due == nil {
		return now
	}
	next, _ := due.next(now)
	return next
}

// tryOut enqueues a task and takes it back: a task that the ledger refuses must not be found out
// about when it is due.
func tryOut(ctx context.Context, tx pgx.Tx, s Schedule, slot time.Time) error {
	trial, err := tx.Begin(ctx)
	if err != nil {
		return pgerr.Explain("apply schedule "+s.Name, err)
	}
	defer trial.Rollback(context.WithoutCancel(ctx))
	if _, err := enqueueSlot(ctx, trial, s, slot); err != nil {
		return fmt.Errorf("schedule %q: %w", s.Name, err)
	}
	return nil
}

// passOverDue records the slots that nobody has fired and nobody will.
func passOverDue(ctx context.Context, tx pgx.Tx, s Status, now time.Time, reason string) error {
	due, faults := s.Schedule.compile()
	if len(faults) > 0 || due == nil || s.NextAt.IsZero() || s.NextAt.After(now) {
		return nil // what cannot be read was never due
	}
	return carryOut(ctx, tx, s, passOver(due, s.NextAt, now), reason)
}

// fields are those of a schedule as JSON has them, but for its name, in this order.
func fields(s Schedule) []Field {
	limit := ""
	if s.MissedLimit != 0 {
		limit = fmt.Sprint(s.MissedLimit)
	}
	return []Field{
		{Name: "kind", To: string(s.Kind)}, {Name: "args", To: string(s.Args)},
		{Name: "cron", To: s.Cron}, {Name: "zone", To: s.Zone},
		{Name: "every", To: interval(s.Every)}, {Name: "anchor", To: instant(s.Anchor)}, {Name: "after", To: interval(s.After)},
		{Name: "missed", To: string(s.Missed)}, {Name: "missed_limit", To: limit}, {Name: "overlap", To: string(s.Overlap)},
	}
}

// differing returns the fields that differ between two schedules with defaults.
func differing(from, to Schedule) (different []Field) {
	before := fields(from)
	for i, f := range fields(to) {
		if f.From = before[i].To; f.From != f.To {
			different = append(different, f)
		}
	}
	return different
}

// sameTimes reports whether two schedules with defaults are due at the same times.
func sameTimes(a, b Schedule) bool {
	return a.Cron == b.Cron && a.Zone == b.Zone && a.Every == b.Every && a.Anchor.Equal(b.Anchor) && a.After == b.After
}

// optional is NULL for the empty string.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// milliseconds is NULL for zero.
func milliseconds(d time.Duration) *int64 {
	if d == 0 {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}
