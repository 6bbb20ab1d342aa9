package main

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

//go:embed jumped.sql
var jumpedSQL string

// record contains everything that a run left behind; the checker decides from it.
type record struct {
	calls     map[ledger.Key]call           // of producers
	placed    map[ledger.Key]string         // business rows: the nonce
	tasks     map[ledger.Key][]ledger.Event // in the ledger
	effects   map[ledger.Key][]string       // rows of handlers: the nonces
	ran       map[ledger.Key][]string       // calls of handlers with effects elsewhere: the nonces
	runs      map[ledger.Key][]call         // commits that enqueued a run, or replaced args
	seen      []entry                       // messages of the stream, in its order
	done      []time.Time                   // successes, as workers recorded them
	skipped   []string                      // audits that found events which a feed had skipped
	ended     []string                      // services and parts that ended by themselves
	different []projector.Difference        // of the projection
	deeds     []injection
	jumped    []string            // turns that an earlier task of the line should have had
	limits    []ledger.StartLimit // that hold during the run
}

// call is a producer's knowledge of a task.
type call struct {
	op    op // the last one
	at    time.Time
	nonce string
	err   string
}

// cost returns the faults' possible losses.
func (r *record) cost() (all cost) {
	for _, d := range r.deeds {
		all |= d.fault.cost
	}
	return all
}

// has reports whether the faults may have lost something.
func (r *record) has(c cost) bool { return r.cost()&c != 0 }

// newRecord returns the record of the histories.
func newRecord(entries []entry) *record {
	r := &record{
		calls: make(map[ledger.Key]call), placed: make(map[ledger.Key]string),
		tasks: make(map[ledger.Key][]ledger.Event), effects: make(map[ledger.Key][]string),
		ran: make(map[ledger.Key][]string), runs: make(map[ledger.Key][]call),
	}
	for _, e := range entries {
		switch e.Op {
		case opBegun, opCommitted, opRolledBack, opUnknown, opRefused:
			r.calls[e.key()] = call{op: e.Op, at: e.At, nonce: e.Nonce, err: e.Err}
		case opRun:
			r.runs[e.key()] = append(r.runs[e.key()], call{op: e.Op, at: e.At, nonce: e.Nonce})
		case opRan:
			r.ran[e.key()] = append(r.ran[e.key()], e.Nonce)
		case opDone:
			r.done = append(r.done, e.At)
		case opReceived:
			r.seen = append(r.seen, e)
		case opSkipped:
			r.skipped = append(r.skipped, e.Part+": "+e.Err)
		case opEnded:
			r.ended = append(r.ended, e.Part+": "+e.Err)
		}
	}
	slices.SortStableFunc(r.seen, func(a, b entry) int {
		return cmp.Or(a.Stream.Compare(b.Stream), cmp.Compare(a.Sequence, b.Sequence))
	})
	return r
}

// readDatabase adds the content of the database.
func (r *record) readDatabase(ctx context.Context, conn *pgx.Conn) error {
	for position := ledger.Position(0); ; {
		count := 0
		for e, err := range ledger.Read(ctx, conn, position, 10_000) {
			if err != nil {
				return err
			}
			r.tasks[e.Key] = append(r.tasks[e.Key], e)
			position, count = e.Position, count+1
		}
		if count == 0 {
			break
		}
	}
	for _, events := range r.tasks {
		slices.SortFunc(events, func(a, b ledger.Event) int { return cmp.Compare(a.Version, b.Version) })
	}
	rows, _ := conn.Query(ctx, "select kind, biz_id, nonce from torture.effect")
	add := func(k ledger.Key, nonce string) { r.effects[k] = append(r.effects[k], nonce) }
	if err := eachRow(rows, add); err != nil {
		return err
	}
	rows, _ = conn.Query(ctx, "select kind, biz_id, nonce from torture.placed")
	if err := eachRow(rows, func(k ledger.Key, nonce string) { r.placed[k] = nonce }); err != nil {
		return err
	}
	rows, _ = conn.Query(ctx, jumpedSQL)
	jumped, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("read the turns in lines: %w", err)
	}
	r.jumped = jumped
	report, err := projector.Verify(ctx, conn, nil)
	if err != nil {
		return fmt.Errorf("verify the projection: %w", err)
	}
	r.different = report.Differences
	return nil
}

func eachRow(rows pgx.Rows, add func(k ledger.Key, nonce string)) error {
	var kind, id, nonce string
	_, err := pgx.ForEachRow(rows, []any{&kind, &id, &nonce}, func() error {
		add(ledger.Key{Kind: ledger.Kind(kind), BizID: ledger.BizID(id)}, nonce)
		return nil
	})
	return err
}
