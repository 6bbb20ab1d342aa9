package projector

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/rebuild"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/verify_events.sql
	verifyEventsSQL string
	//go:embed sql/verify_tasks.sql
	verifyTasksSQL string
	//go:embed sql/verify_hours.sql
	verifyHoursSQL string
	//go:embed sql/verify_archived.sql
	verifyArchivedSQL string
)

type (
	// Report is the outcome of [Verify].
	Report = rebuild.Report
	// Difference is one place where the projection and the fold of its events differ.
	Difference = rebuild.Difference
)

// Verify folds all events that the built-in projection has applied and compares the result with the tables
// task, task_count, kind_stats, kind_hour and task_tag. It reads everything in one snapshot, so it is exact while
// writers and the projector run. Its memory does not grow with the ledger: the statistics of many kinds and minutes are
// sorted in a temporary file. It changes nothing. progress is called after each part, with the events that are compared
// and about how many there are, unless it is nil.
//
// Events that do not fold are a difference and not an error. A task that was folded again from its whole history is a
// difference, too, until the cursor has passed its events; see the package comment.
func Verify(ctx context.Context, db interface {
	BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
}, progress func(done, total int64)) (Report, error) {
	var report Report
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, db, options, func(tx pgx.Tx) (err error) {
		report, err = verify(ctx, tx, progress)
		return err
	})
	return report, pgerr.Explain("verify projection", err)
}

func verify(ctx context.Context, tx pgx.Tx, progress func(done, total int64)) (Report, error) {
	v := verifier{tx: tx, counts: make(map[total]int64), stats: newStats(), progress: func(_, _ int64) {}}
	if progress != nil {
		v.progress = progress
	}
	defer v.runs.close()
	var err error
	if v.total, err = rebuild.LastPosition(ctx, tx); err != nil {
		return Report{}, err
	}
	if v.isTagged, err = tagsAreWhole(ctx, tx); err != nil {
		return Report{}, err
	}
	if err := v.tasks(ctx); err != nil {
		return Report{}, err
	}
	if err := v.compareTagCount(ctx); err != nil {
		return Report{}, err
	}
	if err := v.totals(ctx); err != nil {
		return Report{}, err
	}
	before := v.report.Different
	if err := v.statistics(ctx); err != nil {
		return Report{}, err
	}
	if v.report.Different == before { // else the hours would repeat the differences of minutes
		err = v.hours(ctx)
	}
	return v.report, err
}

// verifier reads events and tasks side by side, in key order.
type verifier struct {
	tx     pgx.Tx
	report Report
	counts map[total]int64 // the counts by the events
	stats  *stats          // the statistics by the events that are not in runs
	runs   statsRuns

	isTagged bool  // the table contains the tags of all tasks
	tags     int64 // by the events

	progress func(done, total int64)
	total    int64 // positions
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

// wholeTasks returns the number of events without the last task's events, which may be incomplete.
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
	if err := v.compareTags(ctx, events); err != nil {
		return err
	}
	v.report.Events += int64(len(events))
	for _, c := range new(grouper).byTask(events) {
		v.report.Tasks++
		want, err := v.fold(c.events)
		if err != nil {
			v.report.Compare(c.key.String()+" events", "", err.Error())
		}
		v.counts[total{want.Kind, want.State}]++
		for len(table) > 0 && table[0].Key.Compare(c.key) < 0 {
			v.report.Compare(table[0].Key.String(), string(table[0].State), "")
			table = table[1:]
		}
		if len(table) == 0 || table[0].Key != c.key {
			v.report.Compare(c.key.String(), "", string(want.State))
			continue
		}
		v.compareTask(table[0], want)
		table = table[1:]
	}
	for _, t := range table {
		v.report.Compare(t.Key.String(), string(t.State), "")
	}
	v.progress(min(v.report.Events, v.total), v.total)
	if len(v.stats.rows) < statsInMemory {
		return nil
	}
	full := v.stats
	v.stats = newStats()
	return v.runs.add(full)
}

// fold is [ledger.Fold] that counts the events in the statistics.
func (v *verifier) fold(events []ledger.Event) (t ledger.Task, err error) {
	for _, e := range events {
		next, err := t.Apply(e)
		if err != nil {
			return t, err
		}
		v.stats.add(t, e, next, e.Data)
		t = next
	}
	return t, nil
}

// row is a row of the table task.
type row struct {
	ledger.Task
	aside string
	cause string
}

func (v *verifier) compareTask(have row, want ledger.Task) {
	subject := want.Key.String()
	compare := func(column, table, events string) { v.report.Compare(subject+" "+column, table, events) }
	number := func(column string, table, events int64) {
		compare(column, strconv.FormatInt(table, 10), strconv.FormatInt(events, 10))
	}
	moment := func(column string, table, events time.Time) {
		compare(column, table.UTC().Format(time.RFC3339Nano), events.UTC().Format(time.RFC3339Nano))
	}
	number("shard", int64(have.Shard), int64(want.Shard))
	number("priority", int64(have.Priority), int64(want.Priority.Level()))
	compare("partition", have.Partition, want.Partition)
	compare("state", string(have.State), string(want.State))
	compare("aside", have.aside, asideOf(want))
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
	counts, err := ReadCounts(ctx, v.tx, "", lists.All)
	if err != nil {
		return err
	}
	table := make(map[total]int64, len(counts))
	for _, c := range counts {
		table[total{c.Kind, c.State}] = c.Tasks
		v.counts[total{c.Kind, c.State}] += 0 // so that it is compared
	}
	for t, events := range v.counts {
		v.report.Compare(fmt.Sprintf("count of %s %s", t.kind, t.state),
			strconv.FormatInt(table[t], 10), strconv.FormatInt(events, 10))
	}
	return nil
}

// statistics compares the statistics of each kind and minute, side by side in their order. Those of minutes whose
// events may have been archived stay as they are.
func (v *verifier) statistics(ctx context.Context) error {
	var archived int64
	if _, err := pgquery.Row(ctx, v.tx, verifyArchivedSQL, nil, &archived); err != nil {
		return pgerr.Explain("verify projections", err)
	}
	table, endTable := iter.Pull2(v.tableStats(ctx))
	defer endTable()
	events, endEvents := iter.Pull2(v.runs.merged(v.stats))
	defer endEvents()
	have, haveErr, hasHave := table()
	want, wantErr, hasWant := events()
	for hasHave || hasWant {
		if err := errors.Join(haveErr, wantErr); err != nil {
			return err
		}
		order := 0
		switch {
		case !hasWant:
			order = -1
		case !hasHave:
			order = 1
		default:
			order = have.compare(want)
		}
		named, inTable, byEvents := have, have.KindStats, want.KindStats
		if order < 0 {
			byEvents = KindStats{}
		}
		if order > 0 {
			named, inTable = want, KindStats{}
		}
		minute := time.UnixMicro(named.Key.minute * microsPerMinute).UTC().Format(time.RFC3339)
		if named.Key.minute > archived {
			v.report.Compare(fmt.Sprintf("statistics of %s %s", named.Key.kind, minute), inTable.numbers(),
				byEvents.numbers())
		}
		if order <= 0 {
			have, haveErr, hasHave = table()
		}
		if order >= 0 {
			want, wantErr, hasWant = events()
		}
	}
	return nil
}

// maxHours is the number of hours of kinds that a verification reports at most.
const maxHours = 1000

// hours compares the sums by hour with the statistics by minute, which equal the events.
func (v *verifier) hours(ctx context.Context) error {
	rows, err := v.tx.Query(ctx, verifyHoursSQL, int64(maxHours))
	if err != nil {
		return err
	}
	var kind, inTable, byEvents string
	var hour time.Time
	_, err = pgx.ForEachRow(rows, []any{&kind, pgquery.Micros(&hour), &inTable, &byEvents}, func() error {
		v.report.Compare(fmt.Sprintf("statistics of %s, hour %s", kind, hour.UTC().Format(time.RFC3339)), inTable,
			byEvents)
		return nil
	})
	return err
}

func (v *verifier) events(ctx context.Context, after ledger.Key, limit int) ([]ledger.Event, error) {
	rows, err := v.tx.Query(ctx, verifyEventsSQL, feed.ProjectorReader, string(after.Kind), string(after.BizID),
		int64(limit))
	if err != nil {
		return nil, err
	}
	return collectFoldEvents(rows, limit)
}

// collectFoldEvents returns the events of a query for the columns that the fold of a projected task needs. about is
// roughly their number.
func collectFoldEvents(rows pgx.Rows, about int) ([]ledger.Event, error) {
	defer rows.Close()
	events := make([]ledger.Event, 0, about)
	var e ledger.Event
	columns := []any{(*string)(&e.Kind), (*string)(&e.BizID), (*int32)(&e.Version), (*int32)(&e.Attempt),
		(*int)(&e.Shard), (*string)(&e.Type), pgquery.Micros(&e.RecordedAt), (*[]byte)(&e.Data), (*[]byte)(&e.Meta),
		&e.DataVersion, (*int)(&e.Priority), (*pgquery.Repeated)(&e.Partition), &e.Run, (*int64)(&e.Position)}
	for rows.Next() {
		e.Data, e.Meta = nil, nil // the previous event owns the bytes that were scanned into them
		if err := rows.Scan(columns...); err != nil {
			return nil, err
		}
		current, err := ledger.Upcast(e)
		if err != nil {
			return nil, err
		}
		events = append(events, current)
	}
	return events, rows.Err()
}

func (v *verifier) table(ctx context.Context, after, end ledger.Key) ([]row, error) {
	rows, err := v.tx.Query(ctx, verifyTasksSQL, string(after.Kind), string(after.BizID), string(end.Kind),
		string(end.BizID))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (t row, err error) {
		err = r.Scan((*string)(&t.Kind), (*string)(&t.BizID), (*int)(&t.Shard), (*string)(&t.State), &t.aside,
			(*int32)(&t.Version), (*int32)(&t.Attempt), &t.Failures, pgquery.Micros(&t.EnqueuedAt),
			pgquery.Micros(&t.UpdatedAt), &t.Error, &t.Fingerprint, pgquery.Micros(&t.DueAt), &t.cause,
			(*int)(&t.Priority), &t.Partition)
		return t, err
	})
}
