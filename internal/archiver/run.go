package archiver

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/begin.sql
	beginSQL string
	//go:embed sql/waits.sql
	waitsSQL string
	//go:embed sql/candidates.sql
	candidatesSQL string
	//go:embed sql/unremoved.sql
	unremovedSQL string
	//go:embed sql/remove.sql
	removeSQL string
	//go:embed sql/end.sql
	endSQL string
	//go:embed sql/forget.sql
	forgetSQL string
	//go:embed sql/merge_minutes.sql
	mergeMinutesSQL string
)

const (
	// pageEvents is how many events a statement reads for candidates. batchTasks is how many tasks a transaction
	// removes, in about 50 ms: producers of the same keys wait for it.
	pageEvents = 5000
	batchTasks = 1000
	// fileTasks is how many tasks are stored together before they are removed.
	fileTasks = 100_000
	// waitEvery is how often a run looks whether older transactions have ended.
	waitEvery = 100 * time.Millisecond
)

// The defaults of [Options].
const (
	DefaultHold = 7 * 24 * time.Hour
	DefaultWait = 10 * time.Minute
)

// Files stores the events of tasks before they are removed.
type Files interface {
	// Store stores the events of whole tasks durably, verifies the files, and returns their name. The tasks are
	// finished, and their events do not change.
	Store(ctx context.Context, tasks []Task) (name string, err error)
	// Place names the files' place for other processes. An erasure looks there, even if the run is killed.
	Place() string
	// CutSeal removes the rows of the seal whose tiles the files contain, and returns how many leaves they had. It
	// records actor and reason.
	CutSeal(ctx context.Context, actor, reason string) (leaves int64, err error)
	// CatchUp erases in the files the texts that were erased in the ledger.
	CatchUp(ctx context.Context) error
}

// Task is a finished task and its last event.
type Task struct {
	Key     ledger.Key
	Version ledger.Version
}

// Options are the options of [Run].
type Options struct {
	// OlderThan is how long ago a task must have ended, at least 0.
	OlderThan time.Duration
	// Kinds are the kinds of tasks. Default: all but reserved ones, of taskledger itself.
	Kinds []ledger.Kind
	// Except are kinds whose tasks stay. Default: none.
	Except []ledger.Kind
	// Hold is how much longer than OlderThan a task stays that a subscriber or the relay has not read. Default: 7 days.
	Hold time.Duration
	// Wait is how long a run waits for older transactions. Default: 10 minutes.
	Wait time.Duration
	// Files stores the events. Default: the events are in no file.
	Files Files
	// Actor and Reason are recorded with each batch. Default of Actor: the database's session_user.
	Actor, Reason string
	// Rest is how long a run rests after each batch, as a multiple of the time that the batch took. Default: 0.
	Rest float64
	// Progress is called after each batch. Default: disabled.
	Progress func(Report)
}

// Validate returns an [*ledger.InvalidError] if o is invalid.
func (o Options) Validate() error {
	for _, d := range []struct {
		name string
		time.Duration
	}{{"older than", o.OlderThan}, {"hold", o.Hold}, {"wait", o.Wait}} {
		if d.Duration < 0 {
			return &ledger.InvalidError{Field: d.name, Value: d.String(), Rule: "must not be negative"}
		}
	}
	return operation.CheckReason(o.Reason)
}

// Report is the result of a run so far.
type Report struct {
	Cutoff    time.Time `json:"cutoff"`  // tasks that have ended before are archived
	Through   time.Time `json:"through"` // of the last event that was read; zero: none
	Tasks     int64     `json:"tasks"`   // removed
	Events    int64     `json:"events"`  // removed with them
	Files     []string  `json:"files"`   // in which they are
	Held      int64     `json:"held"`    // tasks that readers of the feed hold
	HeldBy    string    `json:"held_by,omitempty"`
	Leaves    int64     `json:"leaves,omitempty"`    // of rows that were removed from the seal
	Forgotten int64     `json:"forgotten,omitempty"` // keys whose time was over, see [SetKeyLife]
	// HeldSince is the earliest end of the tasks that readers hold.
	HeldSince time.Time `json:"held_since,omitzero"`
}

// WaitError is the error of a run that has waited for too long for older transactions. Nothing was removed.
type WaitError struct {
	Waited time.Duration
	Pid    int    // of one of the sessions; 0: the dispatcher
	Login  string // of that session
	Since  time.Time
}

// Error states for which session the run has waited.
func (e *WaitError) Error() string {
	return fmt.Sprintf("archive: a transaction of %s, process %d, is open since before this run, for more than %s: "+
		"end it, or run the command again later", e.Login, e.Pid, e.Waited.Round(time.Second))
}

// Run archives tasks, see the package comment. It commits each batch. The login needs the role archiver. It is safe to
// run it several times at once.
//
// Errors: [*ledger.InvalidError], [*WaitError], [ledger.ErrNotMigrated], an error of Files, or one of the database;
// batches before it stay. The report is valid in each case.
func Run(ctx context.Context, db *pgxpool.Pool, o Options) (Report, error) {
	r := &run{db: db, o: o, report: Report{Files: []string{}}}
	if err := o.Validate(); err != nil {
		return r.report, fmt.Errorf("archive: %w", err)
	}
	if r.o.Hold == 0 {
		r.o.Hold = DefaultHold
	}
	if r.o.Wait == 0 {
		r.o.Wait = DefaultWait
	}
	place := ""
	if o.Files != nil {
		if err := o.Files.CatchUp(ctx); err != nil {
			return r.report, fmt.Errorf("archive: %w", err)
		}
		place = o.Files.Place()
	}
	args := []any{o.OlderThan.Microseconds(), pgquery.Optional(place)}
	if _, err := pgquery.Row(ctx, db, beginSQL, args, &r.id, pgquery.Micros(&r.report.Cutoff)); err != nil {
		return r.report, pgerr.Explain("archive", err)
	}
	err := r.wait(ctx)
	if err == nil {
		err = r.archive(ctx)
	}
	if err == nil {
		err = r.cutSeal(ctx)
	}
	if err == nil {
		err = r.forget(ctx)
	}
	if err == nil {
		err = r.mergeMinutes(ctx)
	}
	if err == nil {
		err = r.end(ctx)
	}
	return r.report, pgerr.Explain("archive", err)
}

// run is one run.
type run struct {
	db     *pgxpool.Pool
	o      Options
	id     int64
	report Report
}

// wait waits for the transactions that are older than the run.
func (r *run) wait(ctx context.Context) error {
	began := time.Now()
	for {
		var w WaitError
		isOlder, err := pgquery.Row(ctx, r.db, waitsSQL, []any{r.id}, &w.Pid, &w.Login, pgquery.Micros(&w.Since))
		if err != nil || !isOlder {
			return err
		}
		if w.Waited = time.Since(began); w.Waited > r.o.Wait {
			return &w
		}
		if err := loop.Sleep(ctx, waitEvery); err != nil {
			return err
		}
	}
}

// archive stores and removes the candidates.
func (r *run) archive(ctx context.Context) error {
	most := batchTasks
	if r.o.Files != nil {
		most = fileTasks
	}
	var chosen []Task
	for after, isEnd := int64(0), false; !isEnd; {
		page, err := r.candidates(ctx, after)
		if err != nil {
			return err
		}
		after, isEnd = page.last, page.events < pageEvents
		chosen = append(chosen, page.tasks...)
		for len(chosen) >= most || isEnd && len(chosen) > 0 {
			n := min(most, len(chosen))
			if err := r.move(ctx, chosen[:n]); err != nil {
				return err
			}
			chosen = append(chosen[:0], chosen[n:]...)
		}
	}
	return nil
}

// cutSeal removes the rows of the seal whose tiles the archive contains.
func (r *run) cutSeal(ctx context.Context) (err error) {
	if r.o.Files != nil {
		r.report.Leaves, err = r.o.Files.CutSeal(ctx, r.o.Actor, r.o.Reason)
	}
	return err
}

// forget forgets the keys whose time is over, a batch in a transaction.
func (r *run) forget(ctx context.Context) error {
	for {
		var keys *int64
		args := []any{pgquery.Optional(r.o.Actor), pgquery.Optional(r.o.Reason)}
		if _, err := pgquery.Row(ctx, r.db, forgetSQL, args, &keys); err != nil || keys == nil {
			return err
		}
		fault.Point(fault.ArchiveForgotten)
		r.report.Forgotten += *keys
	}
}

// mergeMinutes merges the statistics of minutes whose tasks may have been archived, an hour in a transaction.
func (r *run) mergeMinutes(ctx context.Context) error {
	for last := (*int64)(nil); ; {
		began := time.Now()
		if _, err := pgquery.Row(ctx, r.db, mergeMinutesSQL, []any{last}, &last); err != nil || last == nil {
			return err
		}
		fault.Point(fault.ArchiveMerged)
		if err := loop.Sleep(ctx, time.Duration(r.o.Rest*float64(time.Since(began)))); err != nil {
			return err
		}
	}
}

// end records the end of the run, for [ReadState].
func (r *run) end(ctx context.Context) error {
	var kinds, since any
	if len(r.o.Kinds) > 0 {
		kinds = pgarray.Of(slices.Sorted(slices.Values(r.o.Kinds))...)
	}
	if !r.report.HeldSince.IsZero() {
		since = r.report.HeldSince.UnixMicro()
	}
	args := []any{r.id, kinds, r.report.Tasks, r.report.Held, pgquery.Optional(r.report.HeldBy), since}
	_, err := r.db.Exec(ctx, endSQL, args...)
	return err
}

// page is a page of candidates.
type page struct {
	tasks  []Task
	events int64 // that were read
	last   int64 // position of the last one
}

// candidates reads the tasks that have ended with one of the events after a position.
func (r *run) candidates(ctx context.Context, after int64) (p page, err error) {
	var kinds, except any
	if len(r.o.Kinds) > 0 {
		kinds = pgarray.Of(r.o.Kinds...)
	}
	except = pgarray.Of(r.o.Except...)
	rows, err := r.db.Query(ctx, candidatesSQL, r.id, kinds, except, r.o.Hold.Microseconds(), after, int64(pageEvents))
	if err != nil {
		return p, err
	}
	defer rows.Close()
	var t Task
	var held int64
	var through, heldSince time.Time
	var heldBy string
	for rows.Next() {
		if err := rows.Scan(&p.events, &p.last, pgquery.Micros(&through), &held, &heldBy, pgquery.Micros(&heldSince),
			(*string)(&t.Key.Kind), (*string)(&t.Key.BizID), (*int32)(&t.Version)); err != nil {
			return p, err
		}
		if t.Version > 0 {
			p.tasks = append(p.tasks, t)
		}
	}
	if err := rows.Err(); err != nil {
		return p, err
	}
	r.report.Held += held
	if heldBy != "" {
		r.report.HeldBy = heldBy
	}
	if since := r.report.HeldSince; !heldSince.IsZero() && (since.IsZero() || heldSince.Before(since)) {
		r.report.HeldSince = heldSince
	}
	if !through.IsZero() {
		r.report.Through = through
	}
	return p, nil
}

// move stores tasks and removes them. An erasure waits until both is done: it would miss files that are being written.
// So does another run that stores to the same place: it may have chosen the same tasks.
func (r *run) move(ctx context.Context, tasks []Task) error {
	return pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
		if err := archive.LockErasures(ctx, tx, true); err != nil {
			return err
		}
		if r.o.Files != nil {
			if err := archive.LockStore(ctx, tx, r.o.Files.Place()); err != nil {
				return err
			}
			var err error
			if tasks, err = r.unremoved(ctx, tasks); err != nil || len(tasks) == 0 {
				return err
			}
		}
		return r.moveLocked(ctx, tasks)
	})
}

// unremoved returns the tasks that no other run has removed since they were chosen.
func (r *run) unremoved(ctx context.Context, tasks []Task) (rest []Task, err error) {
	rows, err := r.db.Query(ctx, unremovedSQL, lists(tasks)...)
	if err != nil {
		return nil, err
	}
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	for _, n := range numbers {
		rest = append(rest, tasks[n-1])
	}
	return rest, err
}

// lists returns kinds, ids and last versions of tasks as array literals.
func lists(tasks []Task) []any {
	var kinds, ids, versions pgarray.Builder
	for _, t := range tasks {
		kinds.Add(string(t.Key.Kind))
		ids.Add(string(t.Key.BizID))
		versions.AddInt(int64(t.Version))
	}
	return []any{kinds.String(), ids.String(), versions.String()}
}

func (r *run) moveLocked(ctx context.Context, tasks []Task) error {
	file := ""
	if r.o.Files != nil {
		var err error
		if file, err = r.o.Files.Store(ctx, tasks); err != nil {
			return err
		}
		r.report.Files = append(r.report.Files, file)
		fault.Point(fault.ArchiveStored)
	}
	for len(tasks) > 0 {
		n := min(batchTasks, len(tasks))
		if err := r.remove(ctx, tasks[:n], file); err != nil {
			return err
		}
		tasks = tasks[n:]
	}
	return nil
}

// remove removes a batch.
func (r *run) remove(ctx context.Context, tasks []Task, file string) error {
	var removed, events int64
	began := time.Now()
	args := append([]any{r.id}, lists(tasks)...)
	args = append(args, pgquery.Optional(file), pgquery.Optional(r.o.Actor), pgquery.Optional(r.o.Reason))
	if _, err := pgquery.Row(ctx, r.db, removeSQL, args, &removed, &events); err != nil {
		return err
	}
	fault.Point(fault.ArchiveRemoved)
	r.report.Tasks += removed
	r.report.Events += events
	if r.o.Progress != nil {
		r.o.Progress(r.report)
	}
	return loop.Sleep(ctx, time.Duration(r.o.Rest*float64(time.Since(began))))
}
