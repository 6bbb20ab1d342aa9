package relays

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
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
	//go:embed sql/installation.sql
	installationSQL string
)

// cursor is the name of the relay's cursor.
const cursor = "relay"

// CauseStore is the cause of a note of a relay while NATS is connected and JetStream stores no message.
const CauseStore = "store"

// Status is the state of publishing, read from the database and the stream. Package health derives conditions for
// operators from it.
type Status struct {
	Waiting       int64         `json:"waiting"`                    // events not published yet
	WaitingCapped bool          `json:"waiting_capped"`             // there are more than Waiting
	OldestAt      time.Time     `json:"oldest_waiting_at,omitzero"` // when the oldest of them was recorded
	OldestWaiting time.Duration `json:"-"`                          // its age by the database's clock
	OldestMS      int64         `json:"oldest_waiting_ms"`          // the same in milliseconds
	Parked        int64         `json:"parked"`                     // events that cannot be published, at most 10,001
	ParkedAt      time.Time     `json:"parked_at,omitzero"`         // when the first of them was parked
	ParkedReason  string        `json:"parked_reason,omitempty"`    // of the last of them
	Generation    int           `json:"generation"`                 // number of losses of the stream, plus 1
	IsOff         bool          `json:"off"`                        // see TurnOff; only Oldest is read then
	CursorError   string        `json:"cursor_error,omitempty"`     // why the relay's cursor is meaningless here
	Relay         *LeaseStatus  `json:"relay"`                      // the holder of the lease, alive or not; nil: none
	Stream        *StreamStatus `json:"stream"`                     // nil: not read, see StreamError
	StreamError   string        `json:"stream_error,omitempty"`     // why the stream cannot be read
	Oldest        *Transaction  `json:"oldest_transaction"`         // the oldest open one of the cluster; nil: none
}

// LeaseStatus is the state of the relay's lease.
type LeaseStatus struct {
	Holder     string    `json:"holder"`
	Since      time.Time `json:"since"`
	AliveUntil time.Time `json:"alive_until"`
	Alive      bool      `json:"alive"`               // by the database's clock, and its connection is not gone
	Note       string    `json:"note,omitempty"`      // why the holder cannot work
	NoteSince  time.Time `json:"note_since,omitzero"` // since when it cannot work, even if the note has changed
	Refused    bool      `json:"refused"`             // the relay must not continue before an operator acts
	// IsStoreFailure: the note is that NATS is connected and JetStream stores no message.
	IsStoreFailure bool `json:"store_failure"`

	cause string
}

// StreamMissing is the StreamError of a [Status] while NATS works and the stream does not exist.
const StreamMissing = "stream not found: the relay creates it"

// StreamStatus is the state of the stream.
type StreamStatus struct {
	Messages uint64    `json:"messages"`
	Bytes    uint64    `json:"bytes"`
	MaxBytes int64     `json:"max_bytes"` // -1: no limit
	FirstSeq uint64    `json:"first_seq"`
	LastSeq  uint64    `json:"last_seq"`
	Created  time.Time `json:"created"`
	Drift    []string  `json:"drift"` // differences from the configuration
	// Behind lists the servers that lack messages or are down, among the servers with a replica.
	Behind []string `json:"behind"`
	Server string   `json:"server"` // version of the NATS server that has answered
	// Late lists the durable consumers that have messages to receive and whose place is before the oldest message: they
	// may have missed some. Only [ReadStatus] reads it.
	Late []string `json:"late_consumers,omitempty"`
}

// Transaction is an open transaction of the database cluster. The relay does not wait for it, but the server
// cannot remove rows that are newer than it.
type Transaction struct {
	PID         int32         `json:"pid,omitempty"`
	Prepared    string        `json:"prepared,omitempty"` // name of a prepared transaction, which lacks a PID
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
// reads the database only. An unavailable stream is part of the status (StreamError), not an error.
func ReadStatus(ctx context.Context, db ledger.DB, js jetstream.JetStream, config stream.Config) (Status, error) {
	var s Status
	if err := s.readDatabase(ctx, db); err != nil {
		return Status{}, err
	}
	if js != nil && !s.IsOff {
		installation, err := Installation(ctx, db)
		if err != nil {
			return Status{}, err
		}
		s.readStream(ctx, js, config, installation)
	}
	return s, nil
}

func (s *Status) readDatabase(ctx context.Context, db ledger.DB) error {
	if err := s.readLease(ctx, db); err != nil { // first, because it may wait
		return err
	}
	if !s.IsOff {
		if err := s.readEvents(ctx, db); err != nil {
			return err
		}
	}
	var t Transaction
	found, err := pgquery.Row(ctx, db, oldestTransactionSQL, nil,
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

// readEvents reads the waiting and the parked events, and the cursor.
func (s *Status) readEvents(ctx context.Context, db ledger.DB) error {
	_, err := pgquery.Row(ctx, db, waitingSQL, []any{int64(maxWaiting + 1)},
		&s.Waiting, pgquery.Micros(&s.OldestAt), &s.OldestMS)
	if err != nil {
		return pgerr.Explain("count waiting events", err)
	}
	s.OldestWaiting = time.Duration(s.OldestMS) * time.Millisecond
	if s.Waiting > maxWaiting {
		s.Waiting, s.WaitingCapped = maxWaiting, true
	}
	_, err = pgquery.Row(ctx, db, parkedSQL, []any{int64(maxWaiting)},
		&s.Parked, pgquery.Micros(&s.ParkedAt), &s.ParkedReason)
	if err != nil {
		return pgerr.Explain("count parked events", err)
	}
	switch err := feed.CheckOrigin(ctx, db, cursor); {
	case feed.IsRefusal(err):
		s.CursorError = err.Error()
	case err != nil:
		return err
	}
	var text *string
	if _, err := pgquery.Row(ctx, db, cursorSQL, nil, &text); err != nil {
		return pgerr.Explain("read the relay's cursor", err)
	}
	if text != nil {
		var mark struct {
			Generation int `json:"generation"`
		}
		if err := json.Unmarshal([]byte(*text), &mark); err != nil {
			return &ledger.CorruptError{What: "mark of the relay's cursor", Err: err}
		}
		s.Generation = mark.Generation
	}
	return nil
}

// GoneAfter is how long the connection of the relay's holder must be gone until [ReadStatus] reports that the relay is
// not alive, without waiting for the end of its lease. A live relay connects again at once.
const GoneAfter = 500 * time.Millisecond

// readLease reads the lease. If the connection of the holder is gone, it reads it again after GoneAfter.
func (s *Status) readLease(ctx context.Context, db ledger.DB) error {
	first, backend, isGone, err := readLease(ctx, db)
	if first != nil && first.cause == causeOff && !first.Alive {
		s.IsOff = true
		return nil
	}
	s.Relay = first
	if err != nil || first == nil || !first.Alive || !isGone {
		return err
	}
	if err := loop.Sleep(ctx, GoneAfter); err != nil {
		return pgerr.Explain("read the relay's lease", err)
	}
	again, now, isGone, err := readLease(ctx, db)
	if s.Relay = again; again != nil && isGone && again.Holder == first.Holder && now == backend {
		again.Alive = false
	}
	return err
}

// readLease returns nil if there is no lease.
func readLease(ctx context.Context, db ledger.DB) (_ *LeaseStatus, backend int32, isGone bool, _ error) {
	var l LeaseStatus
	found, err := pgquery.Row(ctx, db, leaseSQL, nil,
		&l.Holder, pgquery.Micros(&l.Since), pgquery.Micros(&l.AliveUntil), &l.Alive, &l.Note, &l.cause,
		pgquery.Micros(&l.NoteSince), &l.Refused, &backend, &isGone)
	if err != nil || !found {
		return nil, 0, false, pgerr.Explain("read the relay's lease", err)
	}
	l.IsStoreFailure = l.cause == CauseStore
	return &l, backend, isGone, nil
}

func (s *Status) readStream(ctx context.Context, js jetstream.JetStream, config stream.Config, installation string) {
	found, err := js.Stream(ctx, stream.PrefixOf(js.Conn()).Stream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s.StreamError = StreamMissing
		return
	}
	if err != nil {
		s.StreamError = err.Error()
		return
	}
	status := newStreamStatus(js, found.CachedInfo(), config, installation)
	status.Server = js.Conn().ConnectedServerVersion()
	s.Stream = &status
	if found.CachedInfo().State.Consumers == 0 {
		return
	}
	if status.Late, err = lateConsumers(ctx, found); err != nil {
		s.StreamError = fmt.Sprintf("list consumers: %v", ExplainRequest(js, err))
	}
}

// lateConsumers returns the durable consumers that have messages to receive, and whose place is before the oldest
// message.
func lateConsumers(ctx context.Context, of jetstream.Stream) (late []string, err error) {
	consumers := of.ListConsumers(ctx)
	for c := range consumers.Info() {
		isBehind := c.AckFloor.Stream+1 < of.CachedInfo().State.FirstSeq && (c.NumPending > 0 || c.NumAckPending > 0)
		if c.Config.Durable != "" && isBehind {
			late = append(late, c.Config.Durable)
		}
	}
	slices.Sort(late)
	return late, consumers.Err()
}

func newStreamStatus(
	js jetstream.JetStream, info *jetstream.StreamInfo, config stream.Config, installation string,
) StreamStatus {
	state := info.State
	return StreamStatus{
		Messages: state.Msgs, Bytes: state.Bytes, MaxBytes: info.Config.MaxBytes,
		FirstSeq: state.FirstSeq, LastSeq: state.LastSeq, Created: info.Created.UTC(),
		Drift:  append([]string{}, stream.PrefixOf(js.Conn()).Drift(info, config, installation)...),
		Behind: behind(info.Cluster),
	}
}

// behind returns the servers without the whole stream. cluster is nil if the server is alone.
func behind(cluster *jetstream.ClusterInfo) []string {
	names := []string{}
	if cluster == nil {
		return names
	}
	for _, r := range cluster.Replicas {
		if r.Offline || !r.Current {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Installation returns the id of the ledger.
func Installation(ctx context.Context, db ledger.DB) (id string, err error) {
	_, err = pgquery.Row(ctx, db, installationSQL, nil, &id)
	return id, pgerr.Explain("read the installation", err)
}
