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

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
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

// DB is a database in which schedules are changed: a *pgxpool.Pool, a *pgx.Conn, or a pgx.Tx. A change through
// a pgx.Tx is part of that transaction.
type DB interface {
	ledger.DB
	Begin(ctx context.Context) (pgx.Tx, error)
}

// ApplyOptions are the options of [Apply]. Nil means all defaults.
type ApplyOptions struct {
	Prune  bool   // delete the schedules that are not in the list. Default: keep them.
	DryRun bool   // return the differences and change nothing. Default: apply them.
	Actor  string // the author of the changes. Default: the database's session_user.
	Reason string // of the changes, for their records, at most 4 KiB
}

// Apply creates and changes schedules until they equal those in want, and returns the differences by name. If it
// returns an error, it changes nothing. An existing schedule keeps its position unless its times change; then it
// continues from now on. Apply neither pauses nor resumes a schedule.
//
// If db is a transaction of the caller, other calls of Apply wait until it ends. The schedules that differ do not fire
// until then; all others do.
//
// It returns every [*ledger.InvalidError] of all schedules, even for args that only the ledger would refuse later. If
// Prune is set and want is empty, it returns one too, so that a list that could not be read deletes nothing.
func Apply(ctx context.Context, db DB, want []Schedule, o *ApplyOptions) ([]Difference, error) {
	if o == nil {
		o = &ApplyOptions{}
	}
	if o.Prune && len(want) == 0 {
		return nil, invalid("schedules", "", "at least one is required to prune; to delete all, call Remove for each")
	}
	if err := errors.Join(validateAll(want), checkReason(o.Reason)); err != nil {
		return nil, err
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return nil, pgerr.Explain("apply schedules", err)
	}
	defer pgquery.Rollback(ctx, tx) // after the commit it does nothing
	if _, err := tx.Exec(ctx, lockSQL); err != nil {
		return nil, pgerr.Explain("apply schedules", err)
	}
	found, err := ReadSchedules(ctx, tx, "", lists.All)
	if err != nil {
		return nil, err
	}
	applied := make([]Difference, 0, len(want))
	for _, s := range want {
		d, err := apply(ctx, tx, find(found, s.Name), s.withDefaults(), *o)
		if err != nil {
			return nil, err
		}
		applied = append(applied, d)
	}
	for _, f := range found {
		given := slices.ContainsFunc(want, func(s Schedule) bool { return s.Name == f.Schedule.Name })
		if given || !o.Prune {
			continue
		}
		if err := Remove(ctx, tx, f.Schedule.Name, o.Actor, o.Reason); err != nil {
			return nil, err
		}
		applied = append(applied, Difference{Name: f.Schedule.Name, Action: Delete})
	}
	slices.SortFunc(applied, func(a, b Difference) int { return strings.Compare(a.Name, b.Name) })
	if o.DryRun {
		return applied, nil
	}
	return applied, pgerr.Explain("apply schedules", tx.Commit(ctx))
}

func validateAll(want []Schedule) error {
	var faults []error
	names := make(map[string]bool)
	for _, s := range want {
		_, invalidFields := s.compile()
		if names[s.Name] {
			invalidFields = append(invalidFields, invalid("name", s.Name, "must be given once"))
		}
		names[s.Name] = true
		for _, fault := range invalidFields {
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

// apply creates or changes the schedule s, whose defaults are set.
func apply(ctx context.Context, tx pgx.Tx, old *Status, s Schedule, o ApplyOptions) (Difference, error) {
	d := Difference{Name: s.Name, Action: Create}
	if old != nil && len(differences(old.Schedule, s)) == 0 {
		return Difference{Name: s.Name, Action: Keep}, nil
	}
	old, now, err := lock(ctx, tx, s.Name)
	if err != nil {
		return d, err
	}
	next := firstFiring(s, now)
	if old != nil {
		d.Action = Change
		d.Fields = differences(old.Schedule, s)
		if haveSameTimes(old.Schedule, s) {
			next = old.NextAt
		} else if err := passOverDue(ctx, tx, *old, now, reasonChanged); err != nil {
			return d, err
		} else if s.FixedDelay != 0 && old.LastTask != nil {
			next = time.Time{} // the runner checks whether the previous task has finished
		}
	} else {
		d.Fields = differences(Schedule{Name: s.Name}, s)
	}
	if err := tryFiring(ctx, tx, s, now); err != nil {
		return d, err
	}
	_, err = tx.Exec(ctx, putSQL, s.Name, string(s.Kind),
		optional(string(s.Args)), optional(s.Cron), optional(s.Zone),
		milliseconds(s.Every), optional(instant(s.Anchor)), milliseconds(s.FixedDelay), string(s.Missed), s.MissedLimit,
		string(s.Overlap), optional(o.Actor), optionalTime(next))
	if err == nil {
		err = record(ctx, tx, d, o.Actor, o.Reason, now)
	}
	return d, pgerr.Explain("apply schedule "+s.Name, err)
}

// lock locks a schedule and returns it, nil if it does not exist, and the time of the database.
func lock(ctx context.Context, tx pgx.Tx, name string) (s *Status, now time.Time, err error) {
	if _, err := tx.Exec(ctx, lockOneSQL, name); err != nil {
		return nil, now, pgerr.Explain("lock schedule "+name, err)
	}
	if err := tx.QueryRow(ctx, nowSQL).Scan(pgquery.Micros(&now)); err != nil {
		return nil, now, pgerr.Explain("lock schedule "+name, err)
	}
	found, _, err := list(ctx, tx, name, "", 1)
	if err != nil || len(found) == 0 {
		return nil, now, err
	}
	return &found[0], now.UTC(), nil
}

// firstFiring returns the first firing of a valid schedule that begins now.
func firstFiring(s Schedule, now time.Time) time.Time {
	due, _ := s.compile()
	if due == nil {
		return now
	}
	next, _ := due.next(now)
	return next
}

// tryFiring enqueues a task of the schedule and rolls it back, so that Apply and not a later firing reports a task
// that the ledger refuses.
func tryFiring(ctx context.Context, tx pgx.Tx, s Schedule, firing time.Time) error {
	trial, err := tx.Begin(ctx)
	if err != nil {
		return pgerr.Explain("apply schedule "+s.Name, err)
	}
	defer pgquery.Rollback(ctx, trial)
	if _, err := enqueueFiring(ctx, trial, s, firing); err != nil {
		return fmt.Errorf("schedule %q: %w", s.Name, err)
	}
	return nil
}

// passOverDue records the firings that are due as passed over.
func passOverDue(ctx context.Context, tx pgx.Tx, s Status, now time.Time, reason string) error {
	due, faults := s.Schedule.compile()
	if len(faults) > 0 || due == nil || s.NextAt.IsZero() || s.NextAt.After(now) {
		return nil // the firings of an invalid schedule are unknown
	}
	_, err := execute(ctx, tx, s, planPassOver(due, s.NextAt, now), reason) // it fires none
	return err
}

// optional returns NULL for the empty string.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// milliseconds returns NULL for zero.
func milliseconds(d time.Duration) *int64 {
	if d == 0 {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}
