package projector

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/verify_events.sql
	verifyEventsSQL string
	//go:embed sql/verify_tasks.sql
	verifyTasksSQL string
)

// Report is the outcome of [Verify].
type Report struct {
	Events      int64        // applied by the projection, and folded here
	Tasks       int64        // of these events
	Different   int64        // the number of differences
	Differences []Difference // the first 100
}

// Equal reports whether the projection equals the fold of its events.
func (r Report) Equal() bool { return r.Different == 0 }

// Difference is one place where the projection and the fold of its events differ.
type Difference struct {
	Subject string // a task's key and column, or "count of <kind> <state>"
	Table   string // the value in the projection; empty: no such row
	Events  string // the value by the events
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: table has %q, events have %q", d.Subject, d.Table, d.Events)
}

const maxDifferences = 100

func (r *Report) compare(subject, table, events string) {
	if table == events {
		return
	}
	if r.Different++; len(r.Differences) < maxDifferences {
		r.Differences = append(r.Differences, Difference{subject, table, events})
	}
}

// Verify folds all events that the built-in projection has applied and compares the result with the tables
// task and task_count. It reads everything in one snapshot, so it is exact while writers and the projector
// run. Its memory does not grow with the ledger. It changes nothing.
//
// Events that do not fold are a difference and not an error. A task that was folded again from its whole
// history is also a difference until the cursor has passed its events; see the package comment.
func Verify(ctx context.Context, db interface {
	BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
}) (Report, error) {
	var report Report
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, db, options, func(tx pgx.Tx) (err error) {
		report, err = verify(ctx, tx)
		return err
	})
	return report, pgerr.Explain("verify projection", err)
}

func verify(ctx context.Context, tx pgx.Tx) (Report, error) {
	v := verifier{tx: tx, counts: make(map[total]int64)}
	if err := v.tasks(ctx); err != nil {
		return Report{}, err
	}
	err := v.totals(ctx)
	return v.report, err
}

// verifier reads events and tasks side by side, in key order.
type verifier struct {
	tx     pgx.Tx
	report Report
	counts map[total]int64 // the counts by the events
}

// verifyBatch is the number of events in memory at a time, unless one task has more.
var verifyBatch = 20_000

func (v *verifier) tasks(ctx context.Context) error {
	var after ledger.Key
	for limit := verifyBatch; ; {
		events, err := v.events(ctx, after, limit)
		if err != nil {
			return err
		}
		var end ledger.Key // of this batch; zero: there is no further batch
		if len(events) == limit {
			whole := wholeTasks(events)
			if whole == 0 { // one task fills the batch
				limit *= 2
				continue
			}
			events = events[:whole]
			end = events[whole-1].Key
		}
		if err := v.batch(ctx, events, after, end); err != nil || end == (ledger.Key{}) {
			return err
		}
		after, limit = end, verifyBatch
	}
}

// wholeTasks returns the number of events without those of the last task, of which there may be more.
func wholeTasks(events []ledger.Event) int {
	n := len(events)
	for n > 0 && events[n-1].Key == events[len(events)-1].Key {
		n--
	}
	return n
}

// batch compares the tasks after one key and up to another.
func (v *verifier) batch(ctx context.Context, events []ledger.Event, after, end ledger.Key) error {
	table, err := v.table(ctx, after, end)
	if err != nil {
		return err
	}
	v.report.Events += int64(len(events))
	for _, c := range byTask(events) {
		v.report.Tasks++
		want, err := ledger.Fold(c.events)
		if err != nil {
			v.report.compare(c.key.String()+" events", "", err.Error())
		}
		v.counts[total{want.Kind, want.State}]++
		for len(table) > 0 && table[0].Key.Compare(c.key) < 0 {
			v.report.compare(table[0].Key.String(), string(table[0].State), "")
			table = table[1:]
		}
		if len(table) == 0 || table[0].Key != c.key {
			v.report.compare(c.key.String(), "", string(want.State))
			continue
		}
		v.compareTask(table[0], want)
		table = table[1:]
	}
	for _, t := range table {
		v.report.compare(t.Key.String(), string(t.State), "")
	}
	return nil
}

// row is a row of the table task.
type row struct {
	ledger.Task
	exceptional bool
	cause       string
}

func (v *verifier) compareTask(have row, want ledger.Task) {
	subject := want.Key.String()
	compare := func(column, table, events string) { v.report.compare(subject+" "+column, table, events) }
	number := func(column string, table, events int64) {
		compare(column, strconv.FormatInt(table, 10), strconv.FormatInt(events, 10))
	}
	moment := func(column string, table, events time.Time) {
		compare(column, table.UTC().Format(time.RFC3339Nano), events.UTC().Format(time.RFC3339Nano))
	}
	number("shard", int64(have.Shard), int64(want.Shard))
	compare("state", string(have.State), string(want.State))
	compare("aside", strconv.FormatBool(have.exceptional), strconv.FormatBool(want.State.Exceptional()))
	number("version", int64(have.Version), int64(want.Version))
	number("attempt", int64(have.Attempt), int64(want.Attempt))
	number("failures", int64(have.Failures), int64(want.Failures))
	moment("enqueued_at", have.EnqueuedAt, want.EnqueuedAt)
	moment("updated_at", have.UpdatedAt, want.UpdatedAt)
	compare("error", have.Error, want.Error)
	moment("due_at", have.DueAt, want.DueAt)
	compare("fingerprint", have.Fingerprint, want.Fingerprint)
	compare("cause", have.cause, causeOf(want))
}

// totals compares the running totals with the states counted by the events.
func (v *verifier) totals(ctx context.Context) error {
	counts, err := ReadCounts(ctx, v.tx)
	if err != nil {
		return err
	}
	table := make(map[total]int64, len(counts))
	for _, c := range counts {
		table[total{c.Kind, c.State}] = c.Tasks
		v.counts[total{c.Kind, c.State}] += 0 // so that it is compared
	}
	for t, events := range v.counts {
		v.report.compare(fmt.Sprintf("count of %s %s", t.kind, t.state),
			strconv.FormatInt(table[t], 10), strconv.FormatInt(events, 10))
	}
	return nil
}

func (v *verifier) events(ctx context.Context, after ledger.Key, limit int) ([]ledger.Event, error) {
	rows, err := v.tx.Query(ctx, verifyEventsSQL, Reader, string(after.Kind), string(after.BizID), int64(limit))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (e ledger.Event, err error) {
		var data, meta *string
		err = r.Scan((*string)(&e.Kind), (*string)(&e.BizID), (*int32)(&e.Version), (*int32)(&e.Attempt),
			(*int)(&e.Shard), (*string)(&e.Type), pgquery.Micros(&e.RecordedAt), &data, &meta)
		if data != nil {
			e.Data = []byte(*data)
		}
		if meta != nil {
			e.Meta = []byte(*meta)
		}
		return e, err
	})
}

func (v *verifier) table(ctx context.Context, after, end ledger.Key) ([]row, error) {
	rows, err := v.tx.Query(ctx, verifyTasksSQL, string(after.Kind), string(after.BizID), string(end.Kind),
		string(end.BizID))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (t row, err error) {
		err = r.Scan((*string)(&t.Kind), (*string)(&t.BizID), (*int)(&t.Shard), (*string)(&t.State), &t.exceptional,
			(*int32)(&t.Version), (*int32)(&t.Attempt), &t.Failures, pgquery.Micros(&t.EnqueuedAt),
			pgquery.Micros(&t.UpdatedAt), &t.Error, &t.Fingerprint, pgquery.Micros(&t.DueAt), &t.cause)
		return t, err
	})
}
