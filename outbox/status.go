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

// Status is how publishing is going, as anybody can see it from the database and the stream.
type Status struct {
	Waiting       int64         `json:"waiting"`            // events not published yet
	WaitingCapped bool          `json:"waiting_capped"`     // there are more than that
	OldestWaiting time.Duration `json:"-"`                  // age of the oldest of them
	OldestMS      int64         `json:"oldest_waiting_ms"`  // the same in milliseconds
	Parked        int64         `json:"parked"`             // events that could not be published
	Generation    int           `json:"generation"`         // 1 + losses of the stream so far
	Relay         *LeaseStatus  `json:"relay"`              // who works, or did last; nil: nobody yet
	Stream        *StreamStatus `json:"stream"`             // nil: it cannot be reached or does not exist
	Oldest        *Transaction  `json:"oldest_transaction"` // open longest in the cluster; nil: none
	Degraded      []string      `json:"degraded"`           // what a person should see to; empty: all is well
}

// LeaseStatus is who holds the relay's lease.
type LeaseStatus struct {
	Holder     string    `json:"holder"`
	Since      time.Time `json:"since"`
	AliveUntil time.Time `json:"alive_until"`
	Alive      bool      `json:"alive"`               // by the database's clock
	Note       string    `json:"note,omitempty"`      // what keeps it from working
	NoteSince  time.Time `json:"note_since,omitzero"` // since when it does
	Refused    bool      `json:"refused"`             // it must not go on until a person has seen to the note
}

// StreamStatus is what the stream is like.
type StreamStatus struct {
	Messages uint64    `json:"messages"`
	Bytes    uint64    `json:"bytes"`
	MaxBytes int64     `json:"max_bytes"` // -1: no limit
	FirstSeq uint64    `json:"first_seq"`
	LastSeq  uint64    `json:"last_seq"`
	Created  time.Time `json:"created"`
	Drift    []string  `json:"drift"` // how it differs from what is configured
}

// Transaction is one that is open in the database cluster. The relay does not wait for it, but
// it keeps dead rows from being cleaned up.
type Transaction struct {
	PID         int32         `json:"pid,omitempty"`
	Prepared    string        `json:"prepared,omitempty"` // name of a prepared transaction, which has no process
	Application string        `json:"application,omitempty"`
	User        string        `json:"user"`
	Database    string        `json:"database"`
	State       string        `json:"state"`
	Age         time.Duration `json:"-"`
	AgeMS       int64         `json:"age_ms"`
}

// maxWaiting is up to where Status counts.
const maxWaiting = 10_000

// ReadStatus reads the status. config is what the stream should be like; js may be nil, for the
// database's part alone. A stream that cannot be reached is part of the status and no error.
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
		s.degraded("%d events could not be published and are parked, the last one because: %s", s.Parked, reason)
	}
	if err := s.readLease(ctx, db); err != nil {
		return err
	}
	var origin *feed.OriginError
	switch err := feed.CheckOrigin(ctx, db, reader); {
	case errors.As(err, &origin) && (s.Relay == nil || !s.Relay.Refused): // it has not been told yet
		s.degraded("%s", origin)
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
	found, err := queryRow(ctx, db, oldestTransactionSQL, nil, &t.PID, &t.Prepared, &t.Application, &t.User, &t.Database, &t.State, &t.AgeMS)
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
	found, err := queryRow(ctx, db, leaseSQL, nil, &l.Holder, &l.Since, &l.AliveUntil, &l.Alive, &l.Note, &noted, &l.Refused)
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
		s.degraded("no relay is running")
	case l.Refused:
		s.degraded("the relay refuses to go on, since %s: %s", l.NoteSince.Format(time.RFC3339), l.Note)
	case !l.Alive && l.Note != "":
		s.degraded("no relay is working; the last one, %s, said: %s", l.Holder, l.Note)
	case !l.Alive:
		s.degraded("no relay is working; the last one was %s until %s", l.Holder, l.AliveUntil.Format(time.RFC3339))
	case l.Note != "":
		s.degraded("the relay %s is held up: %s", l.Holder, l.Note)
	}
	return nil
}

func (s *Status) readStream(ctx context.Context, js jetstream.JetStream, config StreamConfig, installation string) {
	found, err := js.Stream(ctx, stream.Name)
	if err != nil {
		s.degraded("stream %s cannot be looked at: %v", stream.Name, err)
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
		s.degraded("stream %s is not as configured: %s", stream.Name, d)
	}
	if limit := info.Config.MaxBytes; limit > 0 && int64(state.Bytes) > limit/100*pressureShare {
		s.degraded("stream %s is short of room: %d of %d bytes", stream.Name, state.Bytes, limit)
	}
}

func (s *Status) degraded(format string, a ...any) {
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
