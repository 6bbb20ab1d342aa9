package outbox

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

var (
	//go:embed sql/waiting.sql
	waitingSQL string
	//go:embed sql/lease.sql
	leaseSQL string
	//go:embed sql/parked.sql
	parkedSQL string
	//go:embed sql/cursor.sql
	cursorSQL string
	//go:embed sql/oldest_transaction.sql
	oldestTransactionSQL string
)

// Status is the state of publishing, read from the database and the stream.
type Status struct {
	Waiting       int64         `json:"waiting"`            // events not published yet
	WaitingCapped bool          `json:"waiting_capped"`     // there are more than Waiting
	OldestWaiting time.Duration `json:"-"`                  // age of the oldest of them
	OldestMS      int64         `json:"oldest_waiting_ms"`  // the same in milliseconds
	Parked        int64         `json:"parked"`             // events that cannot be published
	Generation    int           `json:"generation"`         // number of losses of the stream, plus 1
	Relay         *LeaseStatus  `json:"relay"`              // the last holder of the lease; nil: no relay has run
	Stream        *StreamStatus `json:"stream"`             // nil: it is unavailable or does not exist
	Oldest        *Transaction  `json:"oldest_transaction"` // the oldest open one of the cluster; nil: none
	Degraded      []string      `json:"degraded"`           // what an operator should act on
}

// LeaseStatus is the state of the relay's lease.
type LeaseStatus struct {
	Holder     string    `json:"holder"`
	Since      time.Time `json:"since"`
	AliveUntil time.Time `json:"alive_until"`
	Alive      bool      `json:"alive"`               // by the database's clock
	Note       string    `json:"note,omitempty"`      // why the holder cannot work
	NoteSince  time.Time `json:"note_since,omitzero"` // when the note began to hold
	Refused    bool      `json:"refused"`             // the relay must not continue before an operator acts
}

// StreamStatus is the state of the stream.
type StreamStatus struct {
	Messages uint64    `json:"messages"`
	Bytes    uint64    `json:"bytes"`
	MaxBytes int64     `json:"max_bytes"` // -1: no limit
	FirstSeq uint64    `json:"first_seq"`
	LastSeq  uint64    `json:"last_seq"`
	Created  time.Time `json:"created"`
	Drift    []string  `json:"drift"` // differences from the configuration
}

// Transaction is an open transaction of the database cluster. The relay does not wait for it, but the server
// cannot remove rows that are newer than it.
type Transaction struct {
	PID         int32         `json:"pid,omitempty"`
	Prepared    string        `json:"prepared,omitempty"` // name of a prepared transaction, which has no PID
	Application string        `json:"application,omitempty"`
	User        string        `json:"user"`
	Database    string        `json:"database"`
	State       string        `json:"state"`
	Age         time.Duration `json:"-"`
	AgeMS       int64         `json:"age_ms"`
}

// maxWaiting is the greatest number of events that ReadStatus counts.
const maxWaiting = 10_000

// ReadStatus reads the status. config is the wanted configuration of the stream. If js is nil, ReadStatus
// reads the database only. An unavailable stream is part of the status, not an error.
func ReadStatus(ctx context.Context, db ledger.DB, js jetstream.JetStream, config StreamConfig) (Status, error) {
	s := Status{Degraded: []string{}}
	if err := s.readDatabase(ctx, db); err != nil {
		return Status{}, err
	}
	if js != nil {
		var installation string
		if _, err := queryRow(ctx, db, installationSQL, nil, &installation); err != nil {
			return Status{}, pgerr.Explain("read the installation", err)
		}
		s.readStream(ctx, js, config, installation)
	}
	return s, nil
}

func (s *Status) readDatabase(ctx context.Context, db ledger.DB) error {
	if _, err := queryRow(ctx, db, waitingSQL, []any{int64(maxWaiting + 1)}, &s.Waiting, &s.OldestMS); err != nil {
		return pgerr.Explain("count waiting events", err)
	}
	s.OldestWaiting = time.Duration(s.OldestMS) * time.Millisecond
	if s.Waiting > maxWaiting {
		s.Waiting, s.WaitingCapped = maxWaiting, true
	}
	var reason string
	if _, err := queryRow(ctx, db, parkedSQL, []any{int64(maxWaiting)}, &s.Parked, &reason); err != nil {
		return pgerr.Explain("count parked events", err)
	}
	if s.Parked > 0 {
		s.addDegraded("%d events cannot be published and are parked; reason of the last one: %s", s.Parked, reason)
	}
	if err := s.readLease(ctx, db); err != nil {
		return err
	}
	var origin *feed.OriginError
	switch err := feed.CheckOrigin(ctx, db, reader); {
	case errors.As(err, &origin) && (s.Relay == nil || !s.Relay.Refused): // no relay has reported it
		s.addDegraded("%s", origin)
	case err != nil && origin == nil:
		return err
	}
	var text *string
	if _, err := queryRow(ctx, db, cursorSQL, nil, &text); err != nil {
		return pgerr.Explain("read the relay's cursor", err)
	}
	if text != nil {
		m, _, err := parseMark([]byte(*text))
		if err != nil {
			return err
		}
		s.Generation = m.Generation
	}
	var t Transaction
	found, err := queryRow(ctx, db, oldestTransactionSQL, nil,
		&t.PID, &t.Prepared, &t.Application, &t.User, &t.Database, &t.State, &t.AgeMS)
	if err != nil {
		return pgerr.Explain("find the oldest transaction", err)
	}
	if found {
		t.Age = time.Duration(t.AgeMS) * time.Millisecond
		s.Oldest = &t
	}
	return nil
}

func (s *Status) readLease(ctx context.Context, db ledger.DB) error {
	var l LeaseStatus
	var noted *time.Time
	found, err := queryRow(ctx, db, leaseSQL, nil,
		&l.Holder, &l.Since, &l.AliveUntil, &l.Alive, &l.Note, &noted, &l.Refused)
	if err != nil {
		return pgerr.Explain("read the relay's lease", err)
	}
	if found {
		l.Since, l.AliveUntil = l.Since.UTC(), l.AliveUntil.UTC()
		if noted != nil {
			l.NoteSince = noted.UTC()
		}
		s.Relay = &l
	}
	switch {
	case !found:
		s.addDegraded("no relay is running")
	case l.Refused:
		s.addDegraded("the relay refuses to go on, since %s: %s", l.NoteSince.Format(time.RFC3339), l.Note)
	case !l.Alive && l.Note != "":
		s.addDegraded("no relay is working; the last one, %s, stopped because of: %s", l.Holder, l.Note)
	case !l.Alive:
		s.addDegraded("no relay is working; the last one was %s until %s", l.Holder, l.AliveUntil.Format(time.RFC3339))
	case l.Note != "":
		s.addDegraded("the relay %s is blocked: %s", l.Holder, l.Note)
	}
	return nil
}

func (s *Status) readStream(ctx context.Context, js jetstream.JetStream, config StreamConfig, installation string) {
	found, err := js.Stream(ctx, stream.Name)
	if err != nil {
		s.addDegraded("cannot read the state of stream %s: %v", stream.Name, err)
		return
	}
	info := found.CachedInfo()
	state := info.State
	s.Stream = &StreamStatus{
		Messages: state.Msgs, Bytes: state.Bytes, MaxBytes: info.Config.MaxBytes,
		FirstSeq: state.FirstSeq, LastSeq: state.LastSeq, Created: info.Created.UTC(),
		Drift: append([]string{}, stream.Drift(info, config, installation)...),
	}
	for _, d := range s.Stream.Drift {
		s.addDegraded("stream %s differs from its configuration: %s", stream.Name, d)
	}
	if limit := info.Config.MaxBytes; limit > 0 && int64(state.Bytes) > limit/100*nearlyFullPercent {
		s.addDegraded("stream %s is nearly full: %d of %d bytes", stream.Name, state.Bytes, limit)
	}
}

func (s *Status) addDegraded(format string, a ...any) {
	s.Degraded = append(s.Degraded, fmt.Sprintf(format, a...))
}

// queryRow scans the first row of a statement and reports whether there was one.
func queryRow(ctx context.Context, db ledger.DB, sql string, args []any, into ...any) (bool, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return false, err
	}
	if _, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (struct{}, error) {
		return struct{}{}, row.Scan(into...)
	}); errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	return true, nil
}
