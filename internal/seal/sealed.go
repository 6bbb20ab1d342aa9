package seal

import (
	"context"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/range.sql
	rangeSQL string
	//go:embed sql/tasks.sql
	tasksSQL string
	//go:embed sql/salts.sql
	saltsSQL string
	//go:embed sql/salts_late.sql
	saltsLateSQL string
	//go:embed sql/leaves.sql
	leavesSQL string
)

// Sealed is an event with its place in the tree.
type Sealed struct {
	Event

	XID  int64  `json:"xid"`  // of the transaction that recorded the event; no leaf covers it
	Leaf *int64 `json:"leaf"` // from 0; nil: the event is not sealed
	Salt []byte `json:"salt"` // 16 bytes; after erasure the digest of 32 bytes; nil: the event is not sealed
}

// LeafHash returns the hash of the event's leaf, which its salt determines.
func (s Sealed) LeafHash() (tlog.Hash, error) { return s.leaf(s.Salt) }

// ReadRange returns the next events from one position to another with their places in the tree, in the order of
// positions: at most limit. An event of a transaction that is still open is missing. It needs the role reader.
func ReadRange(
	ctx context.Context, db *pgxpool.Pool, from, to ledger.Position, kinds []ledger.Kind, limit int,
) ([]Sealed, error) {
	var names pgarray.Builder
	for _, k := range kinds {
		names.Add(string(k))
	}
	return readSealed(ctx, db, limit, rangeSQL, int64(from), int64(to), names.String(), int64(limit))
}

// ReadTasks returns all events of some tasks with their places in the tree, in the order of positions. It needs the
// role reader.
func ReadTasks(ctx context.Context, db *pgxpool.Pool, keys []ledger.Key) ([]Sealed, error) {
	var kinds, bizIDs pgarray.Builder
	for _, k := range keys {
		kinds.Add(string(k.Kind))
		bizIDs.Add(string(k.BizID))
	}
	return readSealed(ctx, db, 0, tasksSQL, kinds.String(), bizIDs.String())
}

// readSealed returns the events of a query with their places in the tree, as readEvents. It reads both in one snapshot:
// in between, the archive may remove the events and their rows of the seal.
func readSealed(
	ctx context.Context, db *pgxpool.Pool, expected int, sql string, args ...any,
) (events []Sealed, err error) {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, db, snapshot, func(tx pgx.Tx) (err error) {
		if events, err = readEvents(ctx, tx, expected, sql, args...); err != nil {
			return err
		}
		return addLeaves(ctx, tx, events)
	})
	return events, explain("read events", err)
}

// columns returns pointers to scan the columns of events.sql and the transaction id into.
func (s *Sealed) columns() []any { return append(s.Event.columns(), &s.XID) }

// readEvents returns the events of a query with the columns of events.sql and the transaction id, in the order of
// positions. It expects this number of events.
func readEvents(ctx context.Context, db ledger.DB, expected int, sql string, args ...any) ([]Sealed, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	events := make([]Sealed, 0, expected)
	var s Sealed
	_, err = pgx.ForEachRow(rows, s.columns(), func() error {
		events = append(events, s)
		return nil
	})
	return events, err
}

// addLeaves sets leaf and salt of the events that are sealed, which are in the order of positions.
func addLeaves(ctx context.Context, db ledger.DB, events []Sealed) error {
	if len(events) == 0 {
		return nil
	}
	positions := make([]int64, len(events))
	for i := range events {
		positions[i] = int64(events[i].Position)
	}
	leaves := make([]int64, len(events))
	note := func(position, leaf int64, salt string) error {
		at, ok := slices.BinarySearch(positions, position)
		if !ok {
			return nil
		}
		decoded, err := hex.DecodeString(salt)
		if err != nil {
			return &ledger.CorruptError{What: "salts of the seal", Err: err}
		}
		leaves[at] = leaf
		events[at].Leaf, events[at].Salt = &leaves[at], decoded
		return nil
	}
	// One look-up takes as long as reading some dozen entries of batches.
	const dense = 16
	if positions[len(positions)-1]-positions[0] > dense*int64(len(positions)) {
		return eachLeaf(ctx, db, positions, note)
	}
	if err := eachBatchLeaf(ctx, db, saltsSQL, positions, note); err != nil {
		return err
	}
	var missing []int64
	for i := range events {
		if events[i].Leaf == nil {
			missing = append(missing, positions[i])
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return eachBatchLeaf(ctx, db, saltsLateSQL, missing, note)
}

// eachLeaf calls f with each sealed position of some.
func eachLeaf(
	ctx context.Context, db ledger.DB, positions []int64, f func(position, leaf int64, salt string) error,
) error {
	rows, err := db.Query(ctx, leavesSQL, literal(positions))
	if err != nil {
		return err
	}
	var position, leaf int64
	var salt string
	_, err = pgx.ForEachRow(rows, []any{&position, &leaf, &salt}, func() error { return f(position, leaf, salt) })
	return err
}

// eachBatchLeaf calls f with each position of the batches that a statement returns for some positions.
func eachBatchLeaf(
	ctx context.Context, db ledger.DB, sql string, positions []int64,
	f func(position, leaf int64, salt string) error,
) error {
	rows, err := db.Query(ctx, sql, literal(positions))
	if err != nil {
		return err
	}
	var first int64
	var places, salts string
	_, err = pgx.ForEachRow(rows, []any{&first, &places, &salts}, func() error {
		sealed, err := parsePositions(places)
		if err != nil {
			return err
		}
		if n := strings.Count(salts, ",") + 1; n != len(sealed) {
			return &ledger.CorruptError{What: "salts of the seal",
				Err: fmt.Errorf("%d salts for %d events", n, len(sealed))}
		}
		for place, p := range sealed {
			salt, rest, _ := strings.Cut(salts, ",")
			if err := f(p, first+int64(place), salt); err != nil {
				return err
			}
			salts = rest
		}
		return nil
	})
	return err
}

// LedgerEvent returns the event as package ledger reads it, with the name of its login.
func (s Sealed) LedgerEvent(login string) ledger.Event {
	raw := func(text *string) json.RawMessage {
		if text == nil {
			return nil
		}
		return json.RawMessage(*text)
	}
	e := ledger.Event{
		Position: s.Position, Key: s.Key, Version: s.Version, Attempt: s.Attempt, Shard: ledger.Shard(s.Shard),
		Type: ledger.EventType(s.Type), RecordedAt: s.RecordedAt, Login: login, DataVersion: int(s.DataVersion),
		Priority: ledger.Priority(s.Priority), Data: raw(s.Data), Meta: raw(s.Meta),
	}
	if s.Run != nil {
		e.Run = int(*s.Run)
	}
	for of, text := range map[*string]*string{&e.Actor: s.Actor, &e.Partition: s.Partition, &e.OrderKey: s.OrderKey} {
		if text != nil {
			*of = *text
		}
	}
	return e
}
