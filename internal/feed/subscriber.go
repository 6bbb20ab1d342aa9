package feed

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/subscriber_list.sql
	subscriberListSQL string
	//go:embed sql/subscriber_furthest.sql
	subscriberFurthestSQL string
	//go:embed sql/subscriber_seek.sql
	subscriberSeekSQL string
	//go:embed sql/subscriber_mark.sql
	subscriberMarkSQL string
	//go:embed sql/subscriber_give.sql
	subscriberGiveSQL string
	//go:embed sql/subscriber_remove.sql
	subscriberRemoveSQL string
)

// SealReader is the reader of package internal/seal, which appends a cursor row with each of its batches. Rebase moves
// it as it moves subscribers, so that not all events are read again.
const SealReader = "seal"

// ProjectorReader is the reader of the built-in projection.
const ProjectorReader = "projector"

// LineReader is the reader of the dispatcher that gives the tasks in line their turns.
const LineReader = "line"

// subscriberPrefix begins the readers that belong to subscribers. Other readers belong to services.
const subscriberPrefix = "subscriber/"

func isSubscriber(reader string) bool { return strings.HasPrefix(reader, subscriberPrefix) }

// SubscriberReader returns the reader of a subscriber. A login with the role subscriber may only open feeds of such
// readers. The SQL functions taskledger.read_feed and taskledger.advance_feed read as the same reader.
//
// It returns an [*ledger.InvalidError] for a name that is not 1 to 64 of A-Z, a-z, 0-9, _ and -.
func SubscriberReader(name string) (string, error) {
	isValid := len(name) >= 1 && len(name) <= 64
	for _, c := range []byte(name) {
		isLetter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		isValid = isValid && (isLetter || '0' <= c && c <= '9' || c == '_' || c == '-')
	}
	if !isValid {
		rule := "must be 1 to 64 of A-Z, a-z, 0-9, _ and -"
		return "", &ledger.InvalidError{Field: "subscriber", Value: name, Rule: rule}
	}
	return subscriberPrefix + name, nil
}

// Subscriber is where a subscriber continues. subscribers.Subscriber has the same fields, and describes them.
type Subscriber struct {
	Name     string
	IsPaused bool
	Position ledger.Position
	MovedAt  time.Time
	IsLocal  bool
	Lag      int64
	IsCapped bool
	OldestAt time.Time
	Age      int64
	Login    string
	IsOwn    bool
}

// maxLag is the greatest lag that Subscribers counts.
const maxLag = 10_000

// Subscribers returns the subscribers of all languages, or the subscriber with a name, in the order of their names.
// Its cost does not grow with the ledger.
func Subscribers(ctx context.Context, db ledger.DB, name string) ([]Subscriber, error) {
	return listSubscribers(ctx, db, name, "", math.MaxInt64)
}

// SubscribersAfter returns at most limit subscribers whose names follow after, in the order of their names; "" is
// before the first. Its cost grows with limit, not with the number of subscribers. It returns an
// [*ledger.InvalidError] if limit is less than 1.
func SubscribersAfter(ctx context.Context, db ledger.DB, after string, limit int) ([]Subscriber, error) {
	if err := lists.CheckLimit(limit); err != nil {
		return nil, fmt.Errorf("list subscribers: %w", err)
	}
	return listSubscribers(ctx, db, "", after, int64(limit))
}

// SubscribersFurthest returns the limit subscribers whose positions are the furthest behind, in the order of their
// names, and the number of all. It counts only their lags; each other subscriber costs two probes of an index. It
// returns an [*ledger.InvalidError] if limit is less than 1.
func SubscribersFurthest(ctx context.Context, db ledger.DB, limit int) (furthest []Subscriber, total int, err error) {
	if err := lists.CheckLimit(limit); err != nil {
		return nil, 0, fmt.Errorf("list subscribers: %w", err)
	}
	rows, err := db.Query(ctx, subscriberFurthestSQL, int64(maxLag+1), int64(limit))
	if err != nil {
		return nil, 0, pgerr.Explain("list subscribers", err)
	}
	furthest, err = scanSubscribers(rows, &total)
	return furthest, total, err
}

func listSubscribers(ctx context.Context, db ledger.DB, name, after string, limit int64) ([]Subscriber, error) {
	rows, err := db.Query(ctx, subscriberListSQL, name, int64(maxLag+1), after, limit)
	if err != nil {
		return nil, pgerr.Explain("list subscribers", err)
	}
	return scanSubscribers(rows)
}

// scanSubscribers scans the columns of subscribers, which follow the columns scanned into before.
func scanSubscribers(rows pgx.Rows, before ...any) ([]Subscriber, error) {
	defer rows.Close()
	all := []Subscriber{}
	for rows.Next() {
		var s Subscriber
		if err := rows.Scan(append(before, &s.Name, &s.IsPaused, (*int64)(&s.Position), pgquery.Micros(&s.MovedAt),
			&s.IsLocal, &s.Lag, pgquery.Micros(&s.OldestAt), &s.Age, &s.Login, &s.IsOwn)...); err != nil {
			return nil, pgerr.Explain("list subscribers", err)
		}
		if s.Lag > maxLag {
			s.Lag, s.IsCapped = maxLag, true
		}
		all = append(all, s)
	}
	return all, pgerr.Explain("list subscribers", rows.Err())
}

// Start is where a subscriber begins. The zero value is the beginning of the ledger.
type Start struct {
	isNow bool
	after ledger.Position
	at    time.Time
}

// String returns the place, such as "now", "position 17" or a time.
func (s Start) String() string {
	switch {
	case s.isNow:
		return "now"
	case !s.at.IsZero():
		return s.at.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprintf("position %d", s.after)
}

// Now is the present: the events that are committed afterwards.
func Now() Start { return Start{isNow: true} }

// After is the place after the event at a position; 0 is the beginning.
func After(p ledger.Position) Start { return Start{after: p} }

// At is the place after the events that were committed up to a time of the database's clock, see [ledger.MomentAt].
func At(t time.Time) Start { return Start{at: t} }

// Seek moves a subscriber, and creates it if it is missing. A process that works as the subscriber gets
// [ErrSuperseded] at its next page. db is a pool or an idle connection to the primary, or a transaction that has not
// written; Seek does not commit.
//
// Errors: [*ledger.InvalidError]; [ledger.ErrUnknownPosition] for a position without an event; [ErrSubscriberBusy].
func Seek(ctx context.Context, db ledger.DB, name string, to Start) error {
	_, err := seek(ctx, db, name, to, 0)
	return err
}

// Begin creates a subscriber if it is missing, see [Seek], and reports whether it was missing. An existing subscriber
// keeps its place, so that each of several processes may call Begin when it starts.
func Begin(ctx context.Context, db ledger.DB, name string, at Start) (isNew bool, err error) {
	return seek(ctx, db, name, at, 1)
}

func seek(ctx context.Context, db ledger.DB, name string, to Start, onlyNew int64) (isMoved bool, err error) {
	if _, err := SubscriberReader(name); err != nil {
		return false, err
	}
	position, at := int64(to.after), int64(0)
	switch {
	case to.isNow:
		position = -1
	case !to.at.IsZero():
		position, at = -1, to.at.UnixMicro()
		if at <= 0 || to.at.Year() > 9998 {
			rule := "must be between 1970 and now"
			return false, &ledger.InvalidError{Field: "time", Value: to.at.String(), Rule: rule}
		}
	case position < 0:
		rule := "must not be negative"
		return false, &ledger.InvalidError{Field: "position", Value: fmt.Sprint(position), Rule: rule}
	}
	_, err = pgquery.Row(ctx, db, subscriberSeekSQL, []any{name, position, at, onlyNew}, &isMoved)
	switch {
	case pgerr.Code(err) == codeUnknownPosition:
		return false, fmt.Errorf("move subscriber %s: %w: %d", name, ledger.ErrUnknownPosition, position)
	case pgerr.Is(err, pgerr.InvalidParameterValue):
		value := to.at.Format(time.RFC3339Nano)
		return false, &ledger.InvalidError{Field: "time", Value: value, Rule: "must not be in the future"}
	}
	return isMoved, explainBusy("move subscriber "+name, err)
}

// ErrSubscriberBusy is returned by [Seek], [Pause], [Give] and [Remove] if the handler of the subscriber has been in a
// transaction for 5 s: they wait for its end.
var ErrSubscriberBusy = errors.New("its handler has been in a transaction for 5 s: try again when it is done, or end " +
	"its process before")

// explainBusy wraps the error of a function that locks the cursor of a subscriber.
func explainBusy(op string, err error) error {
	if pgerr.Is(err, pgerr.LockNotAvailable) {
		return fmt.Errorf("%s: %w: %w", op, ErrSubscriberBusy, err)
	}
	return pgerr.Explain(op, err)
}

// codeUnknownPosition is the SQLSTATE of taskledger.seek_feed for a position without an event.
const codeUnknownPosition = "TL006"

// Pause stops a subscriber, or lets it continue. A process that works as it gets [ErrSuperseded] at its next page. It
// does not commit. It reports false if there is no such subscriber.
func Pause(ctx context.Context, db ledger.DB, name string, isPaused bool) (bool, error) {
	mark := "{}"
	if isPaused {
		mark = `{"paused":true}`
	}
	if _, err := SubscriberReader(name); err != nil {
		return false, err
	}
	var found bool
	_, err := pgquery.Row(ctx, db, subscriberMarkSQL, []any{name, mark}, &found)
	return found, explainBusy("pause subscriber "+name, err)
}

// Give gives a subscriber to another login, which must exist, and leaves its place. A process that works as it gets
// [ErrSuperseded] at its next page. It does not commit. It reports false if there is no such subscriber.
func Give(ctx context.Context, db ledger.DB, name, login string) (bool, error) {
	if _, err := SubscriberReader(name); err != nil {
		return false, err
	}
	var found bool
	_, err := pgquery.Row(ctx, db, subscriberGiveSQL, []any{name, login}, &found)
	if pgerr.Is(err, pgerr.InvalidParameterValue) {
		return false, &ledger.InvalidError{Field: "login", Value: login, Rule: "must be a role of the database server"}
	}
	return found, explainBusy("give subscriber "+name, err)
}

// Remove removes a subscriber, whatever its name, and reports whether it existed. A process that works as it gets
// [ErrSuperseded] at its next page. It does not commit.
func Remove(ctx context.Context, db ledger.DB, name string) (bool, error) {
	var found bool
	_, err := pgquery.Row(ctx, db, subscriberRemoveSQL, []any{name}, &found)
	return found, explainBusy("remove subscriber "+name, err)
}
