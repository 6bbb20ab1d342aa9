package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

var resync = ledger.Key{Kind: "customer.resync", BizID: "17"}

// enqueueAs enqueues a task that may exist.
func enqueueAs(
	t *testing.T, db ledger.DB, k ledger.Key, args string, o ledger.EnqueueOptions,
) (ledger.Enqueued, error) {
	t.Helper()
	return ledger.Enqueue(t.Context(), db, k, json.RawMessage(args), &o)
}

// loaded returns the task as a load reads it, after comparing it with the fold of its history.
func loaded(t *testing.T, db ledger.DB, k ledger.Key) ledger.Task {
	t.Helper()
	task, err := ledger.Load(t.Context(), db, k)
	if err != nil {
		t.Fatal(err)
	}
	events, err := ledger.History(t.Context(), db, k)
	if err != nil {
		t.Fatal(err)
	}
	folded, err := ledger.Fold(events)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(folded, task); diff != "" {
		t.Fatalf("fold (-) and load (+): %s", diff)
	}
	return task
}

// A rerun begins a run of its own: its args, attempts, failures, error, result and deadlines are not those of the run
// before, and versions continue.
func TestRerun(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, "producer", "worker", "operator")
	o := ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun}
	first, err := enqueueAs(t, pool, resync, `{"n":1}`, o)
	if err != nil || !first.New || first.Version != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := enqueueAs(t, pool, resync, `{"n": 1}`, o)
	if err != nil || again.New || !again.SameArgs || again.Position != first.Position {
		t.Fatalf("while it is unfinished: %+v, %v", again, err)
	}
	if _, err := enqueueAs(t, pool, resync, `{"n":2}`, o); !errors.As(err, new(*ledger.OtherArgsError)) {
		t.Fatalf("other args while it is unfinished: %v", err)
	}
	ledgertest.Append(t, pool, resync, ledger.EventFailed, ledger.EventReleased, ledger.EventSucceeded)

	by := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	o.FinishBy = by
	second, err := enqueueAs(t, pool, resync, `{"n":2}`, o)
	if err != nil || !second.New || second.Version != 5 || second.State != ledger.StateAvailable {
		t.Fatalf("%+v, %v", second, err)
	}
	task := loaded(t, pool, resync)
	if task.Run != 2 || task.Attempt != 0 || task.Failures != 0 || task.Error != "" || string(task.Args) != `{"n":2}` ||
		!task.FinishBy.Equal(by) {
		t.Errorf("the second run: %+v", task)
	}
	e, err := ledger.ArgsEvent(t.Context(), pool, resync)
	if err != nil || e.Position != second.Position || e.Run != 2 || !e.HasArgs() {
		t.Errorf("args: %+v, %v", e, err)
	}
	same, err := enqueueAs(t, pool, resync, `{"n":2}`, ledger.EnqueueOptions{})
	if err != nil || same.New || !same.SameArgs || same.Position != second.Position {
		t.Errorf("compared with the args of the last run: %+v, %v", same, err)
	}
	task = ledgertest.Append(t, pool, resync, ledger.EventStarted, ledger.EventCancelled)
	if task.Attempt != 1 || task.Run != 2 {
		t.Errorf("attempt %d of run %d", task.Attempt, task.Run)
	}
	third, err := enqueueAs(t, pool, resync, `{"n":3}`, ledger.EnqueueOptions{
		IfExists: ledger.IfExistsRerun, RunIn: time.Hour})
	if err != nil || third.State != ledger.StateScheduled || third.Version != 8 {
		t.Fatalf("%+v, %v", third, err)
	}
	if task = loaded(t, pool, resync); task.Run != 3 || task.DueAt.IsZero() || !task.FinishBy.IsZero() {
		t.Errorf("the third run: %+v", task)
	}
	ledgertest.Check(t, pool)
}

// Replace changes args and times of a task that has not begun, and none of a task that has.
func TestReplace(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	o := ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace, RunIn: time.Hour}
	if _, err := enqueueAs(t, pool, resync, `{"n":1}`, o); err != nil {
		t.Fatal(err)
	}
	before := loaded(t, pool, resync)
	answer, err := enqueueAs(t, pool, resync, `{"n":2}`, o)
	if err != nil || !answer.New || answer.Version != 2 || answer.State != ledger.StateScheduled {
		t.Fatalf("%+v, %v", answer, err)
	}
	task := loaded(t, pool, resync)
	if task.Run != 1 || string(task.Args) != `{"n":2}` || !task.DueAt.After(before.DueAt) {
		t.Errorf("%+v", task)
	}
	o.RunIn = 0
	if answer, err = enqueueAs(t, pool, resync, `{"n":3}`, o); err != nil || answer.State != ledger.StateAvailable {
		t.Fatalf("%+v, %v", answer, err)
	}
	ledgertest.Append(t, pool, resync, ledger.EventStarted)
	_, err = enqueueAs(t, pool, resync, `{"n":4}`, o)
	other := wantErrorAs[*ledger.OtherArgsError](t, err)
	if other.Existing.State != ledger.StateRunning || string(loaded(t, pool, resync).Args) != `{"n":3}` {
		t.Errorf("a running task: %+v", other)
	}
	ledgertest.Append(t, pool, resync, ledger.EventSucceeded)
	if answer, err = enqueueAs(t, pool, resync, `{"n":4}`, o); err != nil || !answer.New {
		t.Fatalf("a finished task: %+v, %v", answer, err)
	}
	if task = loaded(t, pool, resync); task.Run != 2 {
		t.Errorf("run %d", task.Run)
	}
	ledgertest.Check(t, pool)
}

// A task that waits for others is not replaced: it would begin before them.
func TestReplaceKeepsPredecessors(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	before := ledger.Key{Kind: "customer.export", BizID: "17"}
	ledgertest.Enqueue(t, pool, before, "")
	if _, err := enqueueAs(t, pool, resync, `1`, ledger.EnqueueOptions{After: []ledger.Key{before}}); err != nil {
		t.Fatal(err)
	}
	_, err := enqueueAs(t, pool, resync, `2`, ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace})
	other := wantErrorAs[*ledger.OtherArgsError](t, err)
	if other.Existing.State != ledger.StateScheduled {
		t.Errorf("%+v", other)
	}
}

// Values and combinations that are not possible are refused before anything is sent, in Go and in SQL.
func TestIfExistsIsChecked(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	after := []ledger.Key{{Kind: "a", BizID: "1"}}
	for name, o := range map[string]ledger.EnqueueOptions{
		"unknown":   {IfExists: "twice"},
		"after":     {IfExists: ledger.IfExistsRerun, After: after},
		"caller":    {IfExists: ledger.IfExistsReplace, CanRun: true},
		"uppercase": {IfExists: "Rerun"},
	} {
		_, err := enqueueAs(t, pool, resync, `1`, o)
		if invalid := wantErrorAs[*ledger.InvalidError](t, err); invalid.Field != "if_exists" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, statement := range []string{
		"select taskledger.enqueue('a.b', '1', if_exists => 'twice')",
		"select taskledger.enqueue('a.b', '1', if_exists => null)",
		`select taskledger.enqueue('a.b', '1', if_exists => 'rerun', after => '{"keys":[{"kind":"a","biz_id":"1"}]}')`,
		`select taskledger.enqueue_many('[{"kind":"a.b","biz_id":"1","if_exists":"twice"}]')`,
	} {
		_, err := pool.Exec(t.Context(), statement)
		if err == nil || !strings.Contains(err.Error(), "invalid if_exists") {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

// A batch treats each entry by its own options.
func TestEnqueueManyAgain(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	key := func(id string) ledger.Key { return ledger.Key{Kind: resync.Kind, BizID: ledger.BizID(id)} }
	for _, id := range []string{"done", "waits", "same"} {
		ledgertest.Enqueue(t, pool, key(id), `1`)
	}
	ledgertest.Append(t, pool, key("done"), ledger.EventSucceeded)
	entry := func(id string, i ledger.IfExists) ledger.Entry {
		return ledger.Entry{Key: key(id), Args: json.RawMessage(`2`), Options: &ledger.EnqueueOptions{IfExists: i}}
	}
	answers, err := ledger.EnqueueMany(t.Context(), pool, []ledger.Entry{
		entry("waits", ledger.IfExistsReplace), entry("new", ledger.IfExistsRerun),
		entry("same", ledger.IfExistsIgnore), entry("done", ledger.IfExistsRerun),
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range answers {
		got = append(got, fmt.Sprintf("%s %v %d", a.BizID, a.New, a.Version))
	}
	want := []string{"waits true 2", "new true 1", "same false 1", "done true 3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	ledgertest.Check(t, pool)
}

// SQL has the same options.
func TestEnqueueAgainInSQL(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	enqueue := func(args, ifExists string) (isNew, isSame bool, version int) {
		t.Helper()
		const call = "select is_new, same_args, version from taskledger.enqueue($1, $2, $3, if_exists => $4)"
		err := pool.QueryRow(t.Context(), call,
			string(resync.Kind), string(resync.BizID), args, ifExists).Scan(&isNew, &isSame, &version)
		if err != nil {
			t.Fatal(err)
		}
		return isNew, isSame, version
	}
	for i, step := range []struct {
		args, ifExists string
		append         ledger.EventType // after it
		isNew, isSame  bool
		version        int
	}{
		{args: "1", ifExists: "rerun", isNew: true, isSame: true, version: 1},
		{args: "2", ifExists: "rerun", version: 1},
		{args: "2", ifExists: "same", version: 1},
		{args: "2", ifExists: "replace", isNew: true, isSame: true, version: 2, append: ledger.EventSucceeded},
		{args: "2", ifExists: "ignore", isSame: true, version: 3},
		{args: "3", ifExists: "rerun", isNew: true, isSame: true, version: 4},
	} {
		isNew, isSame, version := enqueue(step.args, step.ifExists)
		if isNew != step.isNew || isSame != step.isSame || version != step.version {
			t.Errorf("step %d: %v, %v, version %d", i, isNew, isSame, version)
		}
		if step.append != "" {
			ledgertest.Append(t, pool, resync, step.append)
		}
	}
	var many string
	err := pool.QueryRow(t.Context(), `select string_agg(concat_ws(' ', biz_id, is_new, version), ', ')
	  from taskledger.enqueue_many('[{"kind":"customer.resync","biz_id":"17","args":4,"if_exists":"replace"},
	                                 {"kind":"customer.resync","biz_id":"18","if_exists":"rerun"}]')`).Scan(&many)
	if err != nil || many != "17 t 5, 18 t 1" {
		t.Errorf("enqueue_many: %s, %v", many, err)
	}
	if task := loaded(t, pool, resync); task.Run != 2 || string(task.Args) != "4" {
		t.Errorf("%+v", task)
	}
	ledgertest.Check(t, pool)
}

// If callers enqueue the next run at the same time, one of them begins it, and the others get that run.
func TestRerunRace(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	o := &ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun}
	const runs, callers = 10, 4
	for run := range runs {
		var mu sync.Mutex
		var began []ledger.Version
		atOnce(t, callers, func(ctx context.Context) error {
			answer, err := ledger.Enqueue(ctx, pool, resync, json.RawMessage(`1`), o)
			mu.Lock()
			defer mu.Unlock()
			if answer.New {
				began = append(began, answer.Version)
			}
			return err
		})
		if len(began) != 1 || began[0] != ledger.Version(2*run+1) {
			t.Fatalf("run %d began with versions %v", run+1, began)
		}
		ledgertest.Append(t, pool, resync, ledger.EventSucceeded)
	}
	if task := loaded(t, pool, resync); task.Run != runs {
		t.Errorf("%d runs", task.Run)
	}
	ledgertest.Check(t, pool)
}

// A worker that finishes a task and a caller that replaces its args at the same time: if the replacement is first, the
// worker is fenced off; if the worker is first, the replacement is the next run.
func TestReplaceRacesTheWorker(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	replaced, followed := 0, 0
	for i := range 40 {
		k := ledger.Key{Kind: resync.Kind, BizID: ledger.BizID(fmt.Sprint(i))}
		ledgertest.Enqueue(t, pool, k, `1`)
		var answer ledger.Enqueued
		var refused error
		calls := make(chan func(context.Context) error, 2)
		calls <- func(ctx context.Context) (err error) {
			o := &ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace}
			answer, err = ledger.Enqueue(ctx, pool, k, json.RawMessage(`2`), o)
			return err
		}
		calls <- func(ctx context.Context) error {
			_, refused = ledger.Append(ctx, pool, ledgertest.Request(k, 1, ledger.EventSucceeded))
			if ledger.IsConflict(refused) {
				return nil
			}
			return refused
		}
		atOnce(t, 2, func(ctx context.Context) error { return (<-calls)(ctx) })
		task := loaded(t, pool, k)
		switch {
		case !answer.New || string(task.Args) != `2` || task.State != ledger.StateAvailable:
			t.Fatalf("%+v: %+v", answer, task)
		case refused != nil && task.Run == 1:
			replaced++
		case refused == nil && task.Run == 2:
			followed++
		default:
			t.Fatalf("run %d, and the worker got %v", task.Run, refused)
		}
	}
	t.Logf("%d replaced, %d followed", replaced, followed)
	ledgertest.Check(t, pool)
}

// atOnce calls f n times at once, and fails the test for an error.
func atOnce(t *testing.T, n int, f func(context.Context) error) {
	t.Helper()
	var group sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		group.Go(func() { errs[i] = f(t.Context()) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// The load of a task with a long history finds args, run and failures of the last run.
func TestRunsOfALongHistory(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, "producer", "worker", "operator")
	again := ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace}
	for run := 1; run <= 30; run++ {
		if _, err := enqueueAs(t, pool, resync, fmt.Sprint(run), again); err != nil {
			t.Fatal(err)
		}
		if run%3 == 0 {
			later := again
			later.RunIn = time.Hour
			if _, err := enqueueAs(t, pool, resync, fmt.Sprintf(`"run %d"`, run), later); err != nil {
				t.Fatal(err)
			}
			ledgertest.Append(t, pool, resync, ledger.EventScheduled, ledger.EventReleased)
		}
		ledgertest.Append(t, pool, resync, ledger.EventFailed)
		task := loaded(t, pool, resync)
		if task.Run != run || task.Failures != 1 || task.Attempt != 1 {
			t.Fatalf("run %d: %+v", run, task)
		}
		ledgertest.Append(t, pool, resync, ledger.EventReleased, ledger.EventSucceeded)
		loaded(t, pool, resync)
	}
	ledgertest.Check(t, pool)
}

// A worker can neither enqueue a run nor choose a number of a run, so that it cannot give a handler other args.
func TestWorkerCannotForgeARun(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, "worker")
	ledgertest.ExecAsOwner(t, pool, "select taskledger.enqueue('customer.resync', '17', '1')")
	for _, statement := range []string{
		`insert into taskledger.event (version, attempt, shard, type, kind, biz_id, data)
		 select 2, 0, shard, 'enqueued', kind, biz_id, '2' from taskledger.event`,
		`insert into taskledger.event (version, attempt, shard, type, kind, biz_id, data, run)
		 select 2, 1, shard, 'failed', kind, biz_id, '2', 1 from taskledger.event`,
		`select taskledger_internal.enqueue_again('customer.resync', '17', 'replace', '2', null, null, 1, 0, null, null,
		                                          null, null, null, null, null, null, false)`,
	} {
		if _, err := pool.Exec(t.Context(), statement); err == nil {
			t.Errorf("admitted: %s", statement)
		}
	}
}

// The function that enqueues a run refuses the same input as the functions that enqueue a task.
func TestRerunIsChecked(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, "producer")
	for name, call := range map[string]string{
		"kind":      `'taskledger.operation', '1', 'replace', '2', null, null, 1, 0, null, null, null`,
		"actor":     `'a.b', '1', 'replace', '2', null, 'schedule/x', 1, 0, null, null, null`,
		"args":      `'a.b', '1', 'replace', '"' || repeat('x', 300000) || '"', null, null, 1, 0, null, null, null`,
		"meta":      `'a.b', '1', 'replace', '2', '[]', null, 1, 0, null, null, null`,
		"version":   `'a.b', '1', 'replace', '2', null, null, 0, 0, null, null, null`,
		"priority":  `'a.b', '1', 'replace', '2', null, null, 1, 5, null, null, null`,
		"partition": `'a.b', '1', 'replace', '2', null, null, 1, 0, repeat('p', 65), null, null`,
		"run_at":    `'a.b', '1', 'replace', '2', null, null, 1, 0, null, null, 'infinity'`,
	} {
		_, err := pool.Exec(t.Context(),
			"select taskledger_internal.enqueue_again("+call+", null, null, null, null, null, false)")
		if err == nil || !strings.Contains(err.Error(), "taskledger: invalid") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The search for the args of a task does not read its history, with statistics of an empty table or a full one.
func TestArgsOfALongHistoryPlan(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	const search = "select taskledger_internal.args_version('poll', '1')"
	ledgertest.ExecAsOwner(t, pool, `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
		select g, g - 1, 0, case g when 1 then 'enqueued' else 'started' end::taskledger.event_type, 'poll', '1'
		  from generate_series(1, 20000) g`)
	owner := ledgertest.As(t, pool, ledgertest.Owner)
	for _, statistics := range []string{"", "vacuum analyze taskledger.event"} {
		if statistics != "" {
			ledgertest.ExecAsOwner(t, pool, statistics)
		}
		if n := plantest.Blocks(t, owner, nil, search); n > 50 {
			t.Errorf("after %q: %d blocks", statistics, n)
		}
	}
}

// A run has the priority and the partition of its enqueue. A replaced task keeps its own, unless the enqueue names
// others.
func TestPriorityAndPartitionOfARun(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	for i, step := range []struct {
		given, want ledger.Priority
		from, in    string // partitions
		then        []ledger.EventType
	}{
		{given: ledger.PriorityUrgent, want: ledger.PriorityUrgent, from: "a", in: "a"},
		{want: ledger.PriorityUrgent, in: "a"},
		{
			given: ledger.PriorityLow, want: ledger.PriorityLow, from: "b", in: "b",
			then: []ledger.EventType{ledger.EventSucceeded},
		},
		{want: 0},
		{given: ledger.PriorityHigh, want: ledger.PriorityHigh, from: "c", in: "c"},
	} {
		o := ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace, Priority: step.given, Partition: step.from}
		if _, err := enqueueAs(t, pool, resync, fmt.Sprint(i), o); err != nil {
			t.Fatal(err)
		}
		if task := loaded(t, pool, resync); task.Priority != step.want || task.Partition != step.in {
			t.Errorf("step %d: priority %d, partition %q, want %+v", i, task.Priority, task.Partition, step)
		}
		ledgertest.Append(t, pool, resync, step.then...)
	}
	ledgertest.Check(t, pool)
}

// Each entry of a batch gets the result of its own write, even if a later entry replaces its args.
func TestEnqueueManyOfOneKeyInSQL(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	rows, err := pool.Query(t.Context(), `
		select concat_ws(' ', is_new, same_args, version, "position")
		  from taskledger.enqueue_many('[{"kind":"a","biz_id":"1","args":1,"if_exists":"replace"},
		                                 {"kind":"a","biz_id":"1","args":2,"if_exists":"replace"},
		                                 {"kind":"a","biz_id":"1","args":1}]')`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	events, err := ledger.History(t.Context(), pool, ledger.Key{Kind: "a", BizID: "1"})
	if err != nil || len(events) != 2 {
		t.Fatalf("%v, %v", events, err)
	}
	want := []string{
		fmt.Sprintf("t t 1 %d", events[0].Position), fmt.Sprintf("t t 2 %d", events[1].Position),
		fmt.Sprintf("f f 2 %d", events[1].Position),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Entries of one key take effect in their order, in Go and in SQL: an entry that only reads the task gets the run that
// the entries before it have left.
func TestEntriesOfOneKeyInOrder(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	steps := []struct {
		key, args string
		ifExists  ledger.IfExists
		want      string // whether it is new, whether the args are the same, version, state
	}{
		{key: "done", args: "1", want: "false true 2 succeeded"},
		{key: "done", args: "2", ifExists: ledger.IfExistsRerun, want: "true true 3 available"},
		{key: "done", args: "1", ifExists: ledger.IfExistsIgnore, want: "false false 3 available"},
		{key: "done", args: "3", ifExists: ledger.IfExistsReplace, want: "true true 4 available"},
		{key: "done", args: "3", want: "false true 4 available"},
		{key: "new", args: "1", ifExists: ledger.IfExistsReplace, want: "true true 1 available"},
		{key: "new", args: "2", ifExists: ledger.IfExistsReplace, want: "true true 2 available"},
	}
	for _, kind := range []ledger.Kind{"in.go", "in.sql"} {
		ledgertest.Enqueue(t, pool, ledger.Key{Kind: kind, BizID: "done"}, "1")
		ledgertest.Append(t, pool, ledger.Key{Kind: kind, BizID: "done"}, ledger.EventSucceeded)
	}
	entries := make([]ledger.Entry, len(steps))
	list := make([]map[string]any, len(steps))
	for i, s := range steps {
		entries[i] = ledger.Entry{Key: ledger.Key{Kind: "in.go", BizID: ledger.BizID(s.key)},
			Args: json.RawMessage(s.args), Options: &ledger.EnqueueOptions{IfExists: s.ifExists}}
		list[i] = map[string]any{"kind": "in.sql", "biz_id": s.key, "args": json.RawMessage(s.args)}
		if s.ifExists != ledger.IfExistsSame {
			list[i]["if_exists"] = s.ifExists
		}
	}
	answers, err := ledger.EnqueueMany(t.Context(), pool, entries)
	if err != nil {
		t.Fatal(err)
	}
	document, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := pool.Query(t.Context(), `
		select concat_ws(' ', is_new::text, same_args::text, version, state)
		  from taskledger.enqueue_many($1::text::json)`, string(document))
	if err != nil {
		t.Fatal(err)
	}
	inSQL, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range steps {
		a := answers[i]
		if got := fmt.Sprint(a.New, " ", a.SameArgs, " ", a.Version, " ", a.State); got != s.want {
			t.Errorf("entry %d in Go: %s, want %s", i, got, s.want)
		}
		if inSQL[i] != s.want {
			t.Errorf("entry %d in SQL: %s, want %s", i, inSQL[i], s.want)
		}
	}
	ledgertest.Check(t, pool)
}

// dueOf returns when a task is due, and fails the test unless it is scheduled.
func dueOf(t *testing.T, db ledger.DB, k ledger.Key) time.Time {
	t.Helper()
	task := loaded(t, db, k)
	if task.State != ledger.StateScheduled {
		t.Fatalf("%+v", task)
	}
	return task.DueAt
}

// A run that waits behind a finished one, because no scheduler has begun it yet, is replaced by the next enqueue: the
// last run has the newest args.
func TestFollowBeforeTheWaitingRunBegins(t *testing.T) {
	t.Parallel()
	for _, ifExists := range []ledger.IfExists{ledger.IfExistsFollow, ledger.IfExistsReplace, ledger.IfExistsRerun} {
		t.Run(string(ifExists), func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t, ledgertest.App, "relay")
			follow := ledger.EnqueueOptions{IfExists: ledger.IfExistsFollow}
			ledgertest.Enqueue(t, pool, resync, "1")
			ledgertest.Append(t, pool, resync, ledger.EventStarted)
			for _, args := range []string{"2", "3"} {
				if _, err := enqueueAs(t, pool, resync, args, follow); err != nil {
					t.Fatal(err)
				}
			}
			ledgertest.Append(t, pool, resync, ledger.EventSucceeded)
			e, err := enqueueAs(t, pool, resync, "4", ledger.EnqueueOptions{IfExists: ifExists})
			if err != nil || !e.New || e.State != ledger.StateAvailable {
				t.Fatalf("%+v, %v", e, err)
			}
			ledgertest.Append(t, pool, resync, ledger.EventStarted, ledger.EventSucceeded)
			const begin = "select taskledger_internal.begin_next('customer.resync', '17')::integer"
			if count(t, pool, begin) != 1 {
				t.Error("a run waits")
			}
			task := loaded(t, pool, resync)
			if task.Run != 2 || string(task.Args) != "4" || task.State != ledger.StateSucceeded {
				t.Errorf("%+v", task)
			}
			ledgertest.Check(t, pool)
		})
	}
}

// A debounced task is due some time after the last change, but no later than a bound after the first.
func TestDebounceWithABound(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	o := ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace, RunIn: time.Hour, DeferAtMost: 90 * time.Minute}
	first, err := enqueueAs(t, pool, resync, `1`, o)
	if err != nil {
		t.Fatal(err)
	}
	begun := loaded(t, pool, resync).EnqueuedAt
	for i := range 100 {
		if _, err := enqueueAs(t, pool, resync, fmt.Sprint(i), o); err != nil {
			t.Fatal(err)
		}
	}
	o.RunIn = 2 * time.Hour
	if _, err := enqueueAs(t, pool, resync, `2`, o); err != nil {
		t.Fatal(err)
	}
	if due := dueOf(t, pool, resync); !due.Equal(begun.Add(o.DeferAtMost)) {
		t.Errorf("due %s after version %d, want %s", due.Sub(begun), first.Version, o.DeferAtMost)
	}
	o.DeferAtMost = time.Microsecond
	answer, err := enqueueAs(t, pool, resync, `3`, o)
	if err != nil || answer.State != ledger.StateAvailable {
		t.Errorf("past the bound: %+v, %v", answer, err)
	}
	ledgertest.Append(t, pool, resync, ledger.EventSucceeded)

	// The next run has a bound of its own.
	o.RunIn, o.DeferAtMost = time.Hour, 30*time.Minute
	before := time.Now()
	if _, err := enqueueAs(t, pool, resync, `4`, o); err != nil {
		t.Fatal(err)
	}
	if due := dueOf(t, pool, resync); due.Before(before.Add(59 * time.Minute)) {
		t.Errorf("the first enqueue of a run has its own time: due in %s", due.Sub(before))
	}
	if _, err := enqueueAs(t, pool, resync, `5`, o); err != nil {
		t.Fatal(err)
	}
	if due := dueOf(t, pool, resync); due.After(before.Add(31 * time.Minute)) {
		t.Errorf("due in %s", due.Sub(before))
	}
	ledgertest.Check(t, pool)
}

// A throttled task runs once in a period: what is enqueued meanwhile is one run at its end, with the newest args.
func TestThrottle(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, "producer", "worker", "operator")
	o := ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace, ThrottleFor: time.Hour}
	if answer, err := enqueueAs(t, pool, resync, `1`, o); err != nil || answer.State != ledger.StateAvailable {
		t.Fatalf("the first run: %+v, %v", answer, err)
	}
	ledgertest.Append(t, pool, resync, ledger.EventSucceeded)
	ended := loaded(t, pool, resync).UpdatedAt
	for i := range 3 {
		answer, err := enqueueAs(t, pool, resync, fmt.Sprint("1", i), o)
		if err != nil || !answer.New || answer.State != ledger.StateScheduled {
			t.Fatalf("%+v, %v", answer, err)
		}
	}
	if task := loaded(t, pool, resync); !task.DueAt.Equal(ended.Add(time.Hour)) || string(task.Args) != "12" ||
		task.Run != 2 {
		t.Errorf("%+v, want it due at %s", task, ended.Add(time.Hour))
	}
	o.RunIn = 2 * time.Hour
	if _, err := enqueueAs(t, pool, resync, `2`, o); err != nil {
		t.Fatal(err)
	}
	if due := dueOf(t, pool, resync); due.Before(ended.Add(2 * time.Hour)) {
		t.Errorf("a later time counts: %s", due.Sub(ended))
	}
	rerun := ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun, ThrottleFor: time.Hour}
	if answer, err := enqueueAs(t, pool, resync, `2`, rerun); err != nil || answer.New {
		t.Errorf("a waiting run: %+v, %v", answer, err)
	}
	ledgertest.Append(t, pool, resync, ledger.EventReleased, ledger.EventSucceeded)
	rerun.ThrottleFor = time.Microsecond
	if answer, err := enqueueAs(t, pool, resync, `3`, rerun); err != nil || answer.State != ledger.StateAvailable {
		t.Errorf("after the period: %+v, %v", answer, err)
	}
	ledgertest.Check(t, pool)
}

// Callers that enqueue a throttled task at the same time get one run after the period.
func TestThrottleRace(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	ledgertest.Enqueue(t, pool, resync, "0")
	ledgertest.Append(t, pool, resync, ledger.EventSucceeded)
	ended := loaded(t, pool, resync).UpdatedAt
	o := &ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace, ThrottleFor: time.Hour}
	atOnce(t, 8, func(ctx context.Context) error {
		return second(ledger.Enqueue(ctx, pool, resync, json.RawMessage(`1`), o))
	})
	if task := loaded(t, pool, resync); task.Run != 2 || !task.DueAt.Equal(ended.Add(time.Hour)) {
		t.Errorf("%+v", task)
	}
	ledgertest.Check(t, pool)
}

// The SQL functions have the same delays, and the same checks.
func TestDelaysInSQL(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	ledgertest.Enqueue(t, pool, resync, "0")
	ledgertest.Append(t, pool, resync, ledger.EventSucceeded)
	ended := loaded(t, pool, resync).UpdatedAt
	for i, call := range []string{
		"enqueue('customer.resync', '17', '1', if_exists => 'rerun', throttle_for => '1 hour')",
		`enqueue_many('[{"kind":"customer.resync","biz_id":"17","args":2,"if_exists":"replace",
		                 "throttle_for":"1 hour"}]')`,
	} {
		if state, err := queryText(t.Context(), pool, "select state::text from taskledger."+call); err != nil ||
			state != "scheduled" || !dueOf(t, pool, resync).Equal(ended.Add(time.Hour)) {
			t.Errorf("%d: %s, %v", i, state, err)
		}
	}
	const replace = `select state::text from taskledger.enqueue(
		'customer.resync', '17', '3', run_in => '9 hours', if_exists => 'replace', defer_at_most => '1 microsecond')`
	if state, err := queryText(t.Context(), pool, replace); err != nil || state != "available" {
		t.Errorf("%s, %v", state, err)
	}
	for _, call := range []string{
		"enqueue('a', '1', defer_at_most => '1 s')", "enqueue('a', '1', if_exists => 'ignore', throttle_for => '1 s')",
		"enqueue('a', '1', if_exists => 'rerun', defer_at_most => '1 s')",
		"enqueue('a', '1', if_exists => 'rerun', throttle_for => '-1 s')",
		"enqueue('a', '1', if_exists => 'replace', defer_at_most => '300 years')",
		`enqueue_many('[{"kind":"a","biz_id":"1","if_exists":"rerun","throttle_for":"soon"}]')`,
		`enqueue_many('[{"kind":"a","biz_id":"1","throttle_for":"1 s"}]')`,
	} {
		_, err := pool.Exec(t.Context(), "select taskledger."+call)
		if err == nil || !strings.Contains(err.Error(), "taskledger: invalid") {
			t.Errorf("%s: %v", call, err)
		}
	}
	for name, o := range map[string]ledger.EnqueueOptions{
		"defer":    {DeferAtMost: 1},
		"throttle": {IfExists: ledger.IfExistsIgnore, ThrottleFor: 1},
		"rerun":    {IfExists: ledger.IfExistsRerun, DeferAtMost: 1},
		"negative": {IfExists: ledger.IfExistsRerun, ThrottleFor: -1},
		"before":   {IfExists: ledger.IfExistsReplace, DeferAtMost: -1},
	} {
		var invalid *ledger.InvalidError
		if _, err := enqueueAs(t, pool, resync, `1`, o); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ledgertest.Check(t, pool)
}

// A transaction whose snapshot is older than the end of the run gets ErrRetryTransaction, and not the answer that the
// run is unfinished.
func TestRerunWithAnOldSnapshot(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	for _, isolation := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for _, how := range []ledger.IfExists{ledger.IfExistsRerun, ledger.IfExistsReplace} {
			k := ledger.Key{Kind: resync.Kind, BizID: ledger.BizID(string(isolation) + string(how))}
			ledgertest.Enqueue(t, pool, k, "1")
			ledgertest.Append(t, pool, k, ledger.EventStarted)
			begin := func() pgx.Tx {
				tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: isolation})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
				ledgertest.BackendPID(t, tx) // takes the snapshot
				return tx
			}
			o := ledger.EnqueueOptions{IfExists: how}
			current := begin()
			answer, err := enqueueAs(t, current, k, "1", o)
			if err != nil || answer.New || answer.State != ledger.StateRunning {
				t.Errorf("%s: the run is unfinished: %+v, %v", how, answer, err)
			}
			if err := current.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			old := begin()
			ledgertest.Append(t, pool, k, ledger.EventSucceeded)
			if _, err := enqueueAs(t, old, k, "1", o); !errors.Is(err, ledger.ErrRetryTransaction) {
				t.Errorf("%s: the run has finished: %v", how, err)
			}
		}
	}
	ledgertest.Check(t, pool)
}

// A result prints what the call did, and not the key alone.
func TestEnqueuedPrintsItsResult(t *testing.T) {
	t.Parallel()
	e := ledger.Enqueued{Key: resync, State: ledger.StateRunning, Version: 2}
	const want = "customer.resync/17 exists with other args, running, version 2"
	if got := fmt.Sprintf("%+v", e); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
