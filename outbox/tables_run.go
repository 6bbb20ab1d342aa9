package outbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/rebuild"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
)

// errBuilding is the state of a subscriber whose tables have another version.
var errBuilding = errors.New("the tables are of another version and are being built")

const (
	recordTimeout = 10 * time.Second
	// requestsEvery is the interval at which a program looks for operators' requests.
	requestsEvery = time.Second
)

// isKept reports whether the database contains the state of a subscription: its tables, or the events it has parked.
func (s *Subscription) isKept() bool { return s.Tables.isSet() || s.OnFailure == Park }

// inUse returns the handling of the tables in use.
func (s *subscriber) inUse() *handling {
	h := &handling{
		Subscription: s.Subscription, parkedAs: s.reader, reader: s.reader, log: s.Logger, handled: s.clearFailure,
	}
	if s.Tables.isSet() {
		h.schema = s.Tables.Schema
		h.invalidate = func(ctx context.Context) error { return rebuild.Invalidate(ctx, s.DB, s.reader) }
	}
	return h
}

// clearFailure clears the failure in the registry with the first page that is handled after it.
func (s *subscriber) clearFailure(ctx context.Context, tx pgx.Tx) error {
	if !s.isFailing {
		return nil
	}
	return rebuild.ClearFailure(ctx, tx, s.reader)
}

// waitAfter records an event that stops the subscriber, and returns how long to wait. ok is false for other errors.
func (s *subscriber) waitAfter(ctx context.Context, err error) (wait time.Duration, ok bool) {
	var failure *HandleError
	var version *VersionError
	switch {
	case errors.Is(err, errBuilding):
		return requestsEvery, true
	case errors.As(err, &version):
		s.Logger.ErrorContext(ctx, "the subscriber is not run by this program", "subscriber", s.Name, "error", err)
		return s.Standby, true
	case errors.As(err, &failure):
		s.isFailing = true
		s.Logger.ErrorContext(ctx, "an event stops the subscriber; it is tried again", "error", err,
			"retry_in", s.RetryFailed)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
		defer cancel()
		if err := rebuild.RecordFailure(ctx, s.DB, s.reader, failure.Event, failure.Err); err != nil {
			s.Logger.WarnContext(ctx, "the failure is not recorded", "subscriber", s.Name, "error", err)
		}
		return s.RetryFailed, true
	}
	return 0, false
}

// prepare registers the subscriber and makes the tables of a new one. It returns an error if tables of another version
// exist. atBeginning: the subscriber has passed no event.
func (s *subscriber) prepare(ctx context.Context, atBeginning bool) error {
	have, found, err := rebuild.Read(ctx, s.DB, s.reader)
	if err != nil {
		return err
	}
	if !found {
		if err := s.register(ctx, atBeginning); err != nil {
			return err
		}
		if have, _, err = rebuild.Read(ctx, s.DB, s.reader); err != nil {
			return err
		}
	}
	s.isFailing = have.Failing != nil
	return s.compare(have)
}

// compare returns nil if the registered tables match this program.
func (s *subscriber) compare(have rebuild.State) error {
	switch {
	case have.Version < s.Tables.Version:
		return errBuilding
	case have.Version > s.Tables.Version, have.Shape != s.Tables.shape():
		return &VersionError{Of: "subscriber " + s.Name, Tables: have.Version, Program: s.Tables.Version}
	}
	return nil
}

// check reads the registry after the feed was opened: another process that replaces the tables later moves the cursor.
func (s *subscriber) check(ctx context.Context) error {
	have, found, err := rebuild.Read(ctx, s.DB, s.reader)
	if err != nil {
		return err
	}
	if !found {
		return errBuilding
	}
	if err := s.compare(have); err != nil || !s.Tables.isSet() {
		return err
	}
	missing, err := rebuild.MissingTables(ctx, s.DB, s.reader, s.Tables.Schema)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return &TablesError{
			Of: "subscriber " + s.Name, Tables: missing, Reason: "missing",
			Cure: "taskledger rebuild tables " + s.Name,
		}
	}
	return nil
}

// register registers the subscriber and makes its tables, in one transaction. Tables of a subscriber that has passed
// events are invalid, so that they are built from the first event.
func (s *subscriber) register(ctx context.Context, atBeginning bool) error {
	version := s.Tables.Version
	if !atBeginning {
		version = 0
	}
	return pgx.BeginTxFunc(ctx, s.DB, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		isNew, err := rebuild.Register(ctx, tx, s.reader, version, s.Tables.shape(), s.OnFailure == Park)
		if err != nil || !isNew || !s.Tables.isSet() {
			return err
		}
		tables, err := rebuild.MakeTables(ctx, tx, "subscriber "+s.Name, s.Tables.Schema, s.Tables.DDL)
		if err != nil {
			return err
		}
		return rebuild.SetTables(ctx, tx, s.reader, tables)
	})
}

// isAsked reports, at most once in each requestsEvery, whether an operator has asked for a retry.
func (s *subscriber) isAsked(ctx context.Context) (bool, error) {
	if !s.isKept() || time.Since(s.looked) < requestsEvery {
		return false, nil
	}
	s.looked = time.Now()
	return hasRetries(ctx, s.DB, s.reader)
}

// lookBy returns when a poll for events ends, at the latest at the next look for requests. The zero time is never.
func (s *subscriber) lookBy(due time.Time) time.Time {
	if next := s.looked.Add(requestsEvery); s.isKept() && (due.IsZero() || next.Before(due)) {
		return next
	}
	return due
}

// resume checks the tables in use, and handles the parked events that an operator wants to be retried, in the order of
// the cursor.
func (s *subscriber) resume(ctx context.Context, f *feed.Feed) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	return s.retryParked(ctx, f)
}

// retryParked handles the parked events that an operator wants to be retried, a task at a time.
func (s *subscriber) retryParked(ctx context.Context, f *feed.Feed) error {
	for {
		events, err := readRetries(ctx, s.DB, s.reader)
		if err != nil || len(events) == 0 {
			return err
		}
		if err := s.retryTask(ctx, f, events); err != nil {
			return err
		}
	}
}

// retryTask handles the parked events of a task, or parks them again.
func (s *subscriber) retryTask(ctx context.Context, f *feed.Feed, events []ledger.Event) error {
	key := events[0].Key
	live := s.inUse()
	advance := func(tx pgx.Tx) error { return f.Mark(ctx, tx, f.Cursor().Mark) }
	err := live.inTransaction(ctx, s.DB, advance, func(tx pgx.Tx) error {
		failed := events[0]
		failure := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
			for _, e := range events {
				failed = e
				if err := live.call(ctx, savepoint, []ledger.Event{e}); err != nil {
					return err
				}
			}
			return nil
		})
		var broken *brokenError
		switch {
		case failure == nil:
			s.Logger.InfoContext(ctx, "parked events are handled", "subscriber", s.Name, "task", key.String())
			return removeParked(ctx, tx, s.reader, &key)
		case ctx.Err() != nil || rebuild.IsOutage(failure):
			return failure
		case errors.As(failure, &broken):
			err := errors.Join(live.breaks(ctx, s.DB, broken), broken)
			return &HandleError{Subscriber: s.Name, Event: failed, Err: err}
		}
		s.Logger.WarnContext(ctx, "a parked event fails again", "subscriber", s.Name, "event", failed.ID(),
			"error", failure)
		return parkAgain(ctx, tx, s.reader, failed, rebuild.DescribeFailure(failure))
	})
	return err
}

// wanted returns the events that the subscriber handles.
func (s *Subscription) wanted(events []ledger.Event) []ledger.Event {
	if s.wantsAll(events) {
		return events
	}
	return slices.DeleteFunc(slices.Clone(events), func(e ledger.Event) bool { return !s.wants(e) })
}

// runBuilds builds the tables when their version is older, and executes operators' requests.
func (s *subscriber) runBuilds(ctx context.Context) error {
	return loop.Steps{
		Step: func(ctx context.Context) (time.Duration, error) {
			done, err := s.buildIfAsked(ctx)
			switch {
			case errors.Is(err, feed.ErrSuperseded):
				return loop.Jitter(s.Standby), nil
			case err != nil && ctx.Err() == nil:
				s.Logger.ErrorContext(ctx, "the build of the tables failed", "subscriber", s.Name, "error", err)
				return loop.Jitter(s.RetryFailed), nil
			case done:
				return 0, nil
			}
			return loop.Jitter(requestsEvery), err
		},
		Stop: func(error) error { return nil }, // if the ledger itself must not be read, the subscriber ends
	}.Run(ctx)
}

// buildIfAsked reports whether it had any work.
func (s *subscriber) buildIfAsked(ctx context.Context) (bool, error) {
	have, found, err := rebuild.Read(ctx, s.DB, s.reader)
	if err != nil || !found || have.Version > s.Tables.Version {
		return false, err
	}
	var work string
	switch {
	case have.Version < s.Tables.Version:
		work = rebuild.WorkRebuild
	case have.Shape != s.Tables.shape():
		return false, nil
	default:
		work = have.Wanted
	}
	options := &rebuild.Options{
		Progress: rebuild.ShowProgress(ctx, s.DB, s.reader, work, s.Logger), PageSize: s.PageSize, Logger: s.Logger,
	}
	var result any
	switch work {
	case rebuild.WorkRebuild:
		result = struct{}{}
		err = rebuildTables(ctx, s.Subscription, rebuildActor, options)
	case rebuild.WorkVerify:
		result, err = verifyTables(ctx, s.Subscription, options)
	default:
		return false, nil
	}
	return true, s.endWork(ctx, work, result, err)
}

// endWork records the end of a piece of work, and the event that stops it.
func (s *subscriber) endWork(ctx context.Context, work string, result any, failure error) error {
	if ctx.Err() != nil || errors.Is(failure, feed.ErrSuperseded) || rebuild.IsOutage(failure) {
		return failure
	}
	var handle *HandleError
	if errors.As(failure, &handle) {
		if err := rebuild.RecordFailure(ctx, s.DB, s.reader, handle.Event, handle.Err); err != nil {
			return err
		}
	}
	record := subscribers.RebuildOf(s.Name, rebuildActor, "")
	if err := rebuild.RecordEnd(ctx, s.DB, s.reader, work, result, failure, record); err != nil {
		return err
	}
	return failure
}
