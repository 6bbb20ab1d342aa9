package ledger_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
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
	if diff := difference.Of(folded, task); diff != "" {
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

// A result prints what the call did, and not the key alone.
func TestEnqueuedPrintsItsResult(t *testing.T) {
	t.Parallel()
	e := ledger.Enqueued{Key: resync, State: ledger.StateRunning, Version: 2}
	const want = "customer.resync/17 exists with other args, running, version 2"
	if got := fmt.Sprintf("%+v", e); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
