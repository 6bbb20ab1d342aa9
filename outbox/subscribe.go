package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
)

// Subscription configures a subscriber.
type Subscription struct {
	// DB is the primary database, with the role subscriber; Tables and Park need the role relay too, and Tables
	// need CREATE on the database. Required. Up to two of its connections are in use, and two more while Tables
	// are rebuilt.
	DB *pgxpool.Pool
	// Name of the subscriber: 1 to 64 of A-Z, a-z, 0-9, _ and -. It keeps its place in the database. Required.
	Name string
	// From is where a subscriber begins that does not exist. Default: the beginning of the ledger.
	From Start
	// Kinds and Types select the events to handle. Default: all types, and all kinds but taskledger.*.
	Kinds []ledger.Kind
	Types []ledger.EventType

	// Handle handles events in the transaction that stores the subscriber's place. Its writes in tx are committed once
	// for each event. It must not commit. Either Handle or Receive is required.
	//
	// There is at least one event. All events are committed, and a task's events are in order. After an error they are
	// handled again, after a growing delay: first the first event alone, and then twice as many with each call. A panic
	// and runtime.Goexit are errors.
	//
	// Neither function is called concurrently, with one exception: a call is abandoned 5 s after the end of Subscribe's
	// ctx. Then another call may get the same events, and the transaction is rolled back.
	Handle func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error
	// Receive handles events at least once: again after its error, and after a crash. Its ctx is done when the
	// subscriber is paused, moved or removed. It is also done when another process takes over because this one could
	// not reach the database for Standby.
	Receive func(ctx context.Context, events []ledger.Event) error

	// Tables are tables that Handle derives from the events, so that they can be rebuilt. Handle names them without a
	// schema, and all others with theirs. It must depend on the events alone: no clock, no random number, no sequence.
	// From must be the beginning. Default: none.
	Tables Tables
	// OnFailure decides about an event that Handle fails for. With Park or Tables, the events of the page are then
	// handled one at a time in one transaction. Park needs Handle. Default: [Stop].
	OnFailure OnFailure
	// Archive contains the events of archived tasks, see services.Archive: a subscriber that has not read them yet gets
	// them in their place. Default: it goes on without them, and the view taskledger.archive_gaps contains the missed
	// events. A rebuild of Tables is refused then.
	Archive feed.Archive
	// Upcasts bring the data of old events to today's shape before Handle or Receive. Default: none.
	Upcasts ledger.Upcasts
	// RetryFailed is the delay after which an event that stops a subscriber with Tables or Park is retried.
	// Default: 5 s.
	RetryFailed time.Duration

	// PageSize is the maximum number of events of a call. Default: 1000.
	PageSize int
	// Idle is the greatest time between two polls without events. Default: 250 ms.
	Idle time.Duration
	// Standby is the pause of a process whose subscriber is paused, or works in another process. Default: 2 s.
	Standby time.Duration
	// Logger logs outages and the errors of Handle and Receive. Default: [slog.Default].
	Logger *slog.Logger

	// opened is called when the feed is open. isMoved: not at the place of the last page. claim appends a cursor row,
	// so that no other process can.
	opened  func(ctx context.Context, isMoved bool, claim func() error) error
	isWhole bool // after an error the same page comes again, not its first event alone
}

// ErrUnknownSubscriber is returned for a name without a subscriber.
var ErrUnknownSubscriber = subscribers.ErrUnknown

// ErrSubscriberRemoved is returned by [Subscribe] if the subscriber was removed while it worked.
var ErrSubscriberRemoved = errors.New("the subscriber was removed")

// SubscriberOwnerError is returned by [Subscribe] if the subscriber belongs to a login other than DB's.
type SubscriberOwnerError struct{ Name, Login string }

func (e *SubscriberOwnerError) Error() string {
	return fmt.Sprintf("subscriber %s belongs to the login %s: connect as it, or: taskledger seek subscriber %[1]s "+
		"--give LOGIN", e.Name, e.Login)
}

// errUnpassed is returned by a Receive of this package that gets the same events again without delay.
var errUnpassed = errors.New("the events are not passed yet")

// Validate reports every fault at once.
func (s Subscription) Validate() error {
	var faults []error
	if s.DB == nil {
		faults = append(faults, errors.New("DB is required"))
	}
	if _, err := feed.SubscriberReader(s.Name); err != nil {
		faults = append(faults, err)
	}
	if (s.Handle == nil) == (s.Receive == nil) {
		faults = append(faults, errors.New("either Handle or Receive is required"))
	}
	faults = append(faults, s.stateFaults()...)
	for _, kind := range s.Kinds {
		if err := kind.Validate(); err != nil {
			faults = append(faults, err)
		}
	}
	for _, t := range s.Types {
		if t.State() == ledger.StateNone {
			rule := "must be a type of event"
			faults = append(faults, &ledger.InvalidError{Field: "type", Value: string(t), Rule: rule})
		}
	}
	for _, number := range []struct {
		name string
		n    int64
	}{
		{"PageSize", int64(s.PageSize)}, {"Idle", int64(s.Idle)}, {"Standby", int64(s.Standby)},
		{"RetryFailed", int64(s.RetryFailed)},
	} {
		if number.n < 0 {
			faults = append(faults, fmt.Errorf("%s must not be negative, got %d", number.name, number.n))
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("outbox: invalid Subscription: %w", errors.Join(faults...))
	}
	return nil
}

// stateFaults returns the faults of the fields that need more than a place.
func (s Subscription) stateFaults() []error {
	faults := s.withSchema().Tables.faults()
	if s.OnFailure != Stop && s.OnFailure != Park {
		faults = append(faults, fmt.Errorf("OnFailure must be Stop or Park, got %d", s.OnFailure))
	}
	if s.isKept() && s.Handle == nil {
		faults = append(faults, errors.New("Tables and Park need Handle"))
	}
	if s.Tables.isSet() && s.From != (Start{}) {
		faults = append(faults, errors.New("with Tables, From must be the beginning: a rebuild begins there"))
	}
	if err := s.Upcasts.Validate(); err != nil {
		faults = append(faults, err)
	}
	return faults
}

// withSchema returns s with the default of the schema of its tables.
func (s Subscription) withSchema() Subscription {
	if s.Tables.isSet() && s.Tables.Schema == "" {
		s.Tables.Schema = s.Name
	}
	return s
}

// withDefaults returns s with the default of every field that is not set, if it is valid.
func (s Subscription) withDefaults() (Subscription, error) {
	if err := s.Validate(); err != nil {
		return s, err
	}
	s = s.withSchema()
	if s.Logger == nil {
		s.Logger = slog.Default()
	}
	if s.Standby == 0 {
		s.Standby = 2 * time.Second
	}
	if s.Idle == 0 {
		s.Idle = 250 * time.Millisecond
	}
	if s.PageSize == 0 {
		s.PageSize = 1000
	}
	if s.RetryFailed == 0 {
		s.RetryFailed = 5 * time.Second
	}
	return s, nil
}

// Subscribe handles every committed event of the ledger, from the place of the subscriber on, until ctx is done. It
// reads the feed of the database (package ledger/feed), so it needs neither a relay nor NATS, and the age of an event
// does not matter. It retries through outages.
//
// Subscribe returns nil within 5 s after ctx is done, even if Handle or Receive ignores its context, or the database
// does not answer. A Handle that has not returned by then does not keep DB from closing.
//
// One process works as a subscriber; others with its name stand by, and take over within Standby and the next event.
// When an operator pauses, moves or removes the subscriber, the process notices at its next page,
// or after an error of its handler. Pages without events for it count every quarter of Standby only.
//
// Subscribers in one process that share DB read the ledger once for all of them.
//
// Errors: invalid fields of s, [ErrSubscriberRemoved], [*SubscriberOwnerError], [ledger.ErrNotMigrated]; an error for
// which IsRefusal of package ledger/feed is true; [ledger.ErrUnknownPosition] if the subscriber is new and no event has
// the position in From; a database error if the login lacks a right.
func Subscribe(ctx context.Context, s Subscription) error {
	s, err := s.withDefaults()
	if err != nil {
		return err
	}
	reader, err := feed.SubscriberReader(s.Name)
	if err != nil {
		return err
	}
	found, leave := feed.Shared(s.DB, feed.BySubscriber)
	defer leave()
	w := &subscriber{Subscription: s, reader: reader, found: found}
	steps := loop.Steps{
		Step: w.work,
		Stop: func(err error) error {
			var handler *handlerError
			var owner *SubscriberOwnerError
			switch {
			case errors.As(err, &handler), errors.As(err, new(*TablesError)):
				return nil
			case errors.Is(err, ErrSubscriberRemoved), errors.As(err, &owner), feed.IsRefusal(err),
				errors.Is(err, ledger.ErrUnknownPosition): // of From
				return err
			}
			return pgerr.Permanent(err)
		},
		Failed: func(ctx context.Context, err error, in time.Duration) {
			s.Logger.WarnContext(ctx, "subscriber failed; retrying", "subscriber", s.Name, "retry_in", in, "error", err)
		},
	}
	if !s.Tables.isSet() {
		return steps.Run(ctx)
	}
	return loop.Together(ctx, steps.Run, w.runBuilds)
}

// subscriber is a subscriber that works.
type subscriber struct {
	Subscription

	reader  string
	found   *feed.Findings // of the other feeds of DB
	begun   bool           // it existed, so that it is not made again
	n       int64          // superseded: the newest cursor row, at first -1; else 0
	row     int64          // cursor row of its place
	feed    *feed.Feed
	mark    json.RawMessage
	pending []feed.Page // read and not yet handled, because the handler has failed
	passed  *feed.Page  // without events for the handler, and not yet advanced
	few     int         // greatest size of a page after an error of the handler; 0: PageSize
	renewed time.Time   // when this process has appended a cursor row, before that statement

	isFailing bool      // the registry contains an event that stopped the subscriber
	looked    time.Time // when requests of operators were looked for
}

// work handles one page. Without an open feed it opens one.
func (s *subscriber) work(ctx context.Context) (time.Duration, error) {
	if s.feed == nil {
		wait, err := s.open(ctx)
		if waitAfter, ok := s.waitAfter(ctx, err); ok {
			s.close()
			return waitAfter, nil
		}
		if err != nil || s.feed == nil {
			return wait, err
		}
	}
	page, err := s.next(ctx)
	if err == nil {
		err = s.handle(ctx, page)
	}
	if wait, ok := s.waitAfter(ctx, err); ok {
		s.close()
		return wait, nil
	}
	var handler *handlerError
	switch {
	case errors.Is(err, errUnpassed):
		s.close()
		return 0, nil
	case errors.Is(err, loop.ErrAbandoned): // after the end of ctx
		s.Logger.ErrorContext(ctx, "Handle or Receive did not return after its context was done, or the database does "+
			"not answer; the events are handled again", "subscriber", s.Name, "waited", loop.Grace)
	case errors.As(err, &handler):
		s.close() // it may have been moved past these events, paused or removed
		s.narrow()
	case errors.Is(err, feed.ErrSuperseded):
		s.close()
		s.n = -1
		return 0, nil
	case errors.Is(err, feed.ErrCrashed), errors.Is(err, feed.ErrNotPrimary):
		s.close()
	case err == nil:
		s.pending = nil
		s.widen()
	}
	return 0, err
}

// narrow reduces the next page to one event: events before the failing one are passed, and the error names the
// failing event.
func (s *subscriber) narrow() {
	if !s.isWhole {
		s.few = 1
	}
}

// widen doubles the size of the pages after an error, up to PageSize.
func (s *subscriber) widen() {
	if s.few == 0 {
		return
	}
	if s.few *= 2; s.few >= s.PageSize {
		s.few = 0
	}
	s.close()
}

func (s *subscriber) next(ctx context.Context) (feed.Page, error) {
	if len(s.pending) > 0 {
		return s.pending[0], nil
	}
	for {
		var due time.Time
		if s.passed != nil {
			due = s.renewed.Add(s.Standby / 4)
		}
		if asked, err := s.isAsked(ctx); err != nil || asked {
			return feed.Page{}, cmp.Or(err, errUnpassed)
		}
		due = s.lookBy(due)
		page, err := s.feed.LookBy(ctx, due)
		isPassed := s.passed != nil
		switch {
		case err != nil:
			return page, err
		case len(page.Events) > 0 && isPassed:
			page = s.feed.Cover(*s.passed, page)
		case len(page.Events) > 0:
		case isPassed && !time.Now().Before(s.renewed.Add(s.Standby/4)):
			page = *s.passed
		default:
			continue
		}
		s.passed = nil
		s.pending = append(s.pending[:0], page)
		return page, nil
	}
}

// close ends the use of a feed whose cursor another session has moved, or whose database has crashed.
func (s *subscriber) close() { s.feed, s.pending, s.passed = nil, nil, nil }

// open opens the feed, unless the subscriber is paused or works in another process.
func (s *subscriber) open(ctx context.Context) (time.Duration, error) {
	found, err := feed.Subscribers(ctx, s.DB, s.Name)
	switch {
	case err != nil:
		return 0, err
	case len(found) == 0 && s.begun:
		return 0, ErrSubscriberRemoved
	case len(found) == 0:
		isNew, err := feed.Begin(ctx, s.DB, s.Name, s.From.at)
		if s.begun = isNew && err == nil; err != nil && !pgerr.IsRetryable(err) {
			return 0, err
		}
		if s.begun && s.From == (Start{}) {
			return 0, s.noteArchived(ctx)
		}
		return 0, nil
	}
	if !s.begun && s.Receive != nil && time.Since(found[0].MovedAt) < s.Standby+maxSkew {
		s.n = -1 // another process may handle a page, and renews the cursor
	}
	s.begun = true
	if !found[0].IsOwn {
		return 0, &SubscriberOwnerError{Name: s.Name, Login: found[0].Login}
	}
	if found[0].IsPaused {
		return s.Standby, nil
	}
	if s.isKept() {
		if err := s.prepare(ctx, found[0].Position == 0); err != nil {
			return 0, err
		}
	}
	size := s.PageSize
	if s.few > 0 {
		size = s.few
	}
	f, err := feed.Open(ctx, s.DB, s.reader, &feed.Options{
		PageSize: size, Relaxed: s.Receive != nil, Idle: s.Idle, Follows: s.found, Logger: s.Logger,
		Archive: s.Archive,
	})
	if err != nil {
		return 0, err
	}
	if n := f.Cursor().N; s.n != 0 && n != s.n { // another process works
		s.n = n
		return s.Standby + loop.Jitter(s.Standby/4), nil
	}
	if s.isKept() {
		err := s.resume(ctx, f)
		if errors.Is(err, feed.ErrSuperseded) {
			s.n = -1
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
	}
	s.feed, s.mark, s.n = f, f.Cursor().Mark, 0
	isMoved := s.row != f.Cursor().N
	s.row = f.Cursor().N
	if s.opened == nil {
		return 0, nil
	}
	claim := func() error { return s.append(func() error { return f.Renew(ctx) }) }
	if err = s.opened(ctx, isMoved, claim); err != nil {
		s.close()
	}
	if errors.Is(err, feed.ErrSuperseded) {
		s.n, err = -1, nil
	}
	return 0, err
}

// handle handles a page and advances the cursor. For pages without events for the handler it does so a few times a
// second, which keeps other processes from taking over, and the lag correct. After an error of the handler it does so
// for each page, so that none of them is repeated before the failing event.
func (s *subscriber) handle(ctx context.Context, page feed.Page) error {
	events := s.wanted(page.Events)
	if len(events) == 0 && s.few == 0 && time.Since(s.renewed) < s.Standby/4 {
		s.passed = &page // the next page covers it
		return nil
	}
	if s.Receive != nil {
		if len(events) > 0 {
			if err := s.receive(ctx, page, events); err != nil {
				return err
			}
			fault.Point(fault.SubscriberHandled)
		}
		return s.append(func() error { return page.Advance(ctx, nil, s.mark) })
	}
	if s.isKept() {
		advance := func(tx pgx.Tx) error { return page.Advance(ctx, tx, s.mark) }
		err := s.append(func() error { return s.inUse().transact(ctx, s.DB, advance, events) })
		if err == nil && len(events) > 0 {
			s.isFailing = false
		}
		return err
	}
	return s.append(func() error { return s.handleInTx(ctx, page, events) })
}

// append appends a cursor row.
func (s *subscriber) append(do func() error) error {
	at := time.Now()
	err := do()
	if err == nil {
		s.row++
		s.renewed = at
	}
	return err
}

// maxSkew is the greatest difference of clocks at which a process that begins notices that another process works.
const maxSkew = 5 * time.Second

// receive calls Receive. No other process calls it meanwhile: a process that begins a page has appended a cursor row
// within a quarter of Standby, or appends one now. It appends a new row in each quarter while it handles the page. The
// others wait for a Standby without a change.
func (s *subscriber) receive(ctx context.Context, page feed.Page, events []ledger.Event) error {
	renew := func() error { return page.Renew(ctx) }
	if time.Since(s.renewed) > s.Standby/4 {
		if err := s.append(renew); err != nil {
			return err
		}
	}
	handling, cancel := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for loop.Sleep(handling, s.Standby/4) == nil {
			switch err := s.append(renew); {
			case errors.Is(err, feed.ErrSuperseded), errors.Is(err, feed.ErrCrashed):
				cancel(err)
			case err != nil && ctx.Err() == nil:
				s.Logger.WarnContext(ctx, "cannot renew the cursor; another process may take over",
					"subscriber", s.Name, "error", err)
			}
		}
	})
	upcast, err := s.Upcasts.All(events)
	if err == nil {
		err = loop.Bound(ctx, loop.Grace, func() error {
			return loop.Guard(func() error { return s.Receive(handling, upcast) })
		})
	}
	lost := context.Cause(handling)
	cancel(nil)
	renewing.Wait()
	switch {
	case lost != nil && ctx.Err() == nil:
		return lost
	case errors.Is(err, loop.ErrAbandoned):
		return err
	case err != nil:
		return &handlerError{s.Name, events, err}
	}
	return nil
}

func (s *Subscription) wantsAll(events []ledger.Event) bool {
	for i := range events {
		if !s.wants(events[i]) {
			return false
		}
	}
	return true
}

func (s *Subscription) wants(e ledger.Event) bool {
	if len(s.Types) > 0 && !slices.Contains(s.Types, e.Type) {
		return false
	}
	if len(s.Kinds) == 0 {
		return !reserved.IsKind(e.Kind)
	}
	return slices.Contains(s.Kinds, e.Kind)
}
