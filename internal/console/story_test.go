package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// appendAll appends events to a task, the first of which must have been appended.
func (s *site) appendAll(k ledger.Key, events ...ledger.AppendRequest) {
	s.t.Helper()
	owner := ledgertest.As(s.t, s.db, ledgertest.Owner)
	for i, r := range events {
		r.Key, r.Expected = k, ledger.Version(i+1)
		if _, err := ledger.Append(s.t.Context(), owner, r); err != nil {
			s.t.Fatalf("%s: %v", r.Type, err)
		}
	}
}

// The page of a dead task contains its story in a sentence, with the recorded reason, and each attempt once.
func TestStoryOfADeadTask(t *testing.T) {
	t.Parallel()
	s := serve(t)
	k := ledgertest.Key(t, "webhook.deliver/evt-1")
	ledgertest.Enqueue(t, s.db, k, `{}`)
	const failure = `{"duration_ms":120,
		"error":{"type":"*url.Error","message":"partner <is> down","stack":"main.go:7"}}`
	s.appendAll(k,
		ledger.AppendRequest{Type: ledger.EventFailed, Actor: "w-1", Data: []byte(failure), In: time.Hour},
		ledger.AppendRequest{Type: ledger.EventReleased, Actor: "scheduler", Data: []byte(`{"reason":"retry"}`)},
		ledger.AppendRequest{Type: ledger.EventFailed, Actor: "w-2", Data: []byte(failure), In: time.Hour},
		ledger.AppendRequest{Type: ledger.EventBuried, Actor: "w-2",
			Data: []byte(`{"reason":"attempts used up","error":{"message":"partner <is> down"}}`)})
	s.project()
	p := s.as(api.Operator).get("/task?" + keyOf(k))
	(&browser{site: s}).want(p, http.StatusOK, "Dead after 2 attempts",
		"after it was enqueued: partner &lt;is&gt; down", "its attempts are used up", "w-1", "w-2", "The same error.",
		"main.go:7", "taskledger show task webhook.deliver evt-1",
		"Release…", "ran 120 ms")
	if strings.Contains(p.body, ">retry</pre>") || strings.Contains(p.body, "Seal") {
		t.Errorf("a reason is shown as an error, or there is a seal:\n%s", p.content())
	}
}

// The story, the tags and the trace of a task are the last run's.
func TestStoryOfALaterRun(t *testing.T) {
	t.Parallel()
	s := serve(t)
	k := ledgertest.Key(t, "customer.resync/17")
	if _, err := ledgertest.As(t, s.db, ledgertest.Owner).Exec(t.Context(), `
		insert into taskledger.event (kind, biz_id, version, attempt, shard, type, recorded_at, run, data, meta)
		select $1, $2, e.version, e.attempt, 0, e.type::taskledger.event_type, now() - e.ago, e.run,
		       e.data::json, e.meta::json
		  from (values (1, 0, 'enqueued', interval '40 days', null::integer, '{}', '{"tags":["first"]}'),
		               (2, 1, 'succeeded', '39 days', null, '{"duration_ms":1000}', null),
		               (3, 0, 'enqueued', '100 s', 2, '{}', '{"tags":["second"]}'),
		               (4, 1, 'succeeded', '60 s', null, '{"duration_ms":1000}', null))
		    e(version, attempt, type, ago, run, data, meta)
		 order by e.version`, string(k.Kind), string(k.BizID)); err != nil {
		t.Fatal(err)
	}
	s.project()
	p := s.as(api.Operator).get("/task?" + keyOf(k))
	(&browser{site: s}).want(p, http.StatusOK, "Succeeded after 1 attempt, 40 s after it was enqueued", "tag=second")
	if strings.Contains(p.body, "tag=first") {
		t.Errorf("the tags of the first run:\n%s", p.content())
	}
}

// The page of a task that does not begin contains the cause: a paused kind, no worker, or a predecessor.
func TestWhyATaskDoesNotBegin(t *testing.T) {
	t.Parallel()
	s := serve(t)
	k, next := ledgertest.Key(t, "coupon.send/order-1"), ledgertest.Key(t, "mail.send/order-1")
	ledgertest.Enqueue(t, s.db, k, `{}`)
	after := &ledger.EnqueueOptions{After: []ledger.Key{k}}
	if _, err := ledger.Enqueue(t.Context(), s.db, next, nil, after); err != nil {
		t.Fatal(err)
	}
	s.project()
	b := s.as(api.Viewer)
	b.want(b.get("/task?"+keyOf(k)), http.StatusOK, "Waits for a worker for", "no live worker handles the kind")
	b.want(b.get("/task?"+keyOf(next)), http.StatusOK, "begins when 1 task has succeeded",
		"It waits for coupon.send/order-1 (available).")
	ledgertest.ExecAsOwner(t, s.db, `insert into taskledger.lease (name, holder, since, alive_until, detail) values
		('worker/w-1', 'w-1', now(), now() + interval '1 hour', '{"kinds":["coupon.send"],"shards":"all"}')`)
	b.want(b.get("/task?"+keyOf(k)), http.StatusOK, "Waiting tasks of the kind: 1; live workers: 1.")
	ledgertest.ExecAsOwner(t, s.db, `update taskledger.lease set detail = '{"kinds":["coupon.send"],"shards":"all",
		"load":{"coupon.send":{"slots":8,"running":7}}}' where name = 'worker/w-1'`)
	b.want(b.get("/task?"+keyOf(k)), http.StatusOK, "live workers: 1, with 1 of 8 slots free at their last report. ",
		"A free slot begins a task at once: if this one goes on waiting, check that a dispatcher is running, and read")
	ledgertest.ExecAsOwner(t, s.db, `update taskledger.lease set detail = '{"kinds":["coupon.send"],"shards":"all",
		"load":{"coupon.send":{"slots":8,"running":8}}}' where name = 'worker/w-1'`)
	b.want(b.get("/task?"+keyOf(k)), http.StatusOK, "with 0 of 8 slots free", "It begins when a slot is free.")
	o := operator.New(ledgertest.As(t, s.db, "operator"))
	audit := operator.Audit{Actor: "ada", Reason: "wrong price"}
	if _, err := o.PauseKind(t.Context(), "coupon.send", audit); err != nil {
		t.Fatal(err)
	}
	b.want(b.get("/task?"+keyOf(k)), http.StatusOK, "ada paused the kind: wrong price")
}

// A kind is failing for an hour; the overview and its page show whether it still fails.
func TestFailingOfLate(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for n := range 6 {
		k := ledgertest.Key(t, fmt.Sprintf("webhook.deliver/evt-%d", n))
		ledgertest.Enqueue(t, s.db, k, `{}`)
		s.appendAll(k, ledger.AppendRequest{Type: ledger.EventFailed,
			Data: []byte(`{"error":{"message":"refused"}}`), In: time.Hour})
	}
	s.project()
	ledgertest.ExecAsOwner(t, s.db, "update taskledger.kind_stats set minute = minute - interval '10 minutes'")
	b := s.as(api.Viewer)
	for _, path := range []string{"/", "/kind?name=webhook.deliver"} {
		b.want(b.get(path), http.StatusOK, "0 of 0 attempts", "in the last 5 minutes", "in the last hour")
	}
}

// A kind fails as soon as many attempts of the last five minutes failed, however many succeeded in the hour, and the
// overview shows an error. It no longer fails once the attempts of the last five minutes succeed.
func TestFailingSinceAMoment(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for n := range 6 {
		k := ledgertest.Key(t, fmt.Sprintf("webhook.deliver/evt-%d", n))
		ledgertest.Enqueue(t, s.db, k, `{}`)
		s.appendAll(k, ledger.AppendRequest{Type: ledger.EventFailed,
			Data: []byte(`{"error":{"message":"connection <refused>"}}`), In: time.Hour})
	}
	s.project()
	ledgertest.ExecAsOwner(t, s.db, `insert into taskledger.kind_stats
		select (jsonb_populate_record(s, jsonb_build_object('minute', s.minute - interval '20 minutes',
		        'succeeded', 1000, 'failed', 0))).*
		  from taskledger.kind_stats s`)
	b := s.as(api.Viewer)
	b.want(b.get("/"), http.StatusOK, "webhook.deliver is failing: 6 of 6 attempts in the last 5 minutes, 6 of 1,006",
		"connection &lt;refused&gt;")
	ledgertest.ExecAsOwner(t, s.db, `update taskledger.kind_stats set succeeded = 900, failed = 0
		 where minute > now() - interval '10 minutes'`)
	ledgertest.ExecAsOwner(t, s.db, `update taskledger.kind_stats set succeeded = 0, failed = 1000
		 where minute < now() - interval '10 minutes'`)
	if p := b.get("/"); strings.Contains(p.body, "is failing") {
		t.Errorf("a kind that has recovered is failing still:\n%s", p.body)
	}
}

// After the cure of a kind that failed a moment ago, the overview and its page contain that it succeeds again.
func TestFailedUntilAMoment(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for n := range 6 {
		k := ledgertest.Key(t, fmt.Sprintf("webhook.deliver/evt-%d", n))
		ledgertest.Enqueue(t, s.db, k, `{}`)
		s.appendAll(k, ledger.AppendRequest{Type: ledger.EventFailed,
			Data: []byte(`{"error":{"message":"refused"}}`), In: time.Hour})
	}
	s.project()
	ledgertest.ExecAsOwner(t, s.db, `update taskledger.kind_stats set minute = minute - interval '2 minutes'`)
	ledgertest.ExecAsOwner(t, s.db, `insert into taskledger.kind_stats
		select (jsonb_populate_record(s, jsonb_build_object('minute', s.minute + interval '1 minute',
		        'succeeded', 9, 'failed', 0))).*
		  from taskledger.kind_stats s`)
	b := s.as(api.Viewer)
	p := b.get("/")
	b.want(p, http.StatusOK, "webhook.deliver was failing: 6 of 15 attempts in the last 5 minutes; all of the last 9",
		"recovering")
	if strings.Contains(p.body, "of 15 in the last hour") {
		t.Errorf("the same numbers twice:\n%s", p.content())
	}
	b.want(b.get("/kind?name=webhook.deliver"), http.StatusOK, "6 in the last hour; all of the last 9 succeeded.")
}

// A backlog that grows is a trouble: its oldest task waits although workers handle the kind.
func TestGrowingBacklog(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for n := range 120 {
		ledgertest.Enqueue(t, s.db, ledgertest.Key(t, fmt.Sprintf("mail.send/m-%d", n)), `{}`)
	}
	s.project()
	ledgertest.ExecAsOwner(t, s.db, `update taskledger.task
		set updated_at = now() - interval '3 minutes', lingering = version`)
	b := s.as(api.Viewer)
	b.want(b.get("/"), http.StatusOK, "no worker")
	ledgertest.ExecAsOwner(t, s.db, `insert into taskledger.lease (name, holder, since, alive_until, detail) values
		('worker/w-1', 'w-1', now(), now() + interval '1 hour', '{"kinds":["mail.send"],"shards":"all"}')`)
	b.want(b.get("/"), http.StatusOK, "The backlog of mail.send grows: 120 tasks wait, the oldest for 3 min",
		"24.0/min arrive, 0/s end. 120 of the newest 120 are by ", "tasks?actor=")
	b.want(b.get("/tasks"), http.StatusOK, `value="worker:w-1"`, `value="prefix:m-"`, `value="actor:`)
	b.want(b.get("/kind?name=mail.send"), http.StatusOK, "Its backlog grows")
}

// A task that runs far longer than others of its kind is a trouble, until it has an event.
func TestStuckTask(t *testing.T) {
	t.Parallel()
	s := serve(t)
	quick, slow := ledgertest.Key(t, "report.make/1"), ledgertest.Key(t, "report.make/2")
	start := ledger.AppendRequest{Type: ledger.EventStarted, Actor: "w-1"}
	ledgertest.Enqueue(t, s.db, quick, `{}`)
	ledgertest.Enqueue(t, s.db, slow, `{}`)
	s.appendAll(quick, start,
		ledger.AppendRequest{Type: ledger.EventSucceeded, Actor: "w-1", Data: []byte(`{"duration_ms":80}`)})
	s.appendAll(slow, start)
	s.project()
	ledgertest.ExecAsOwner(t, s.db, `update taskledger.task
		set updated_at = now() - interval '3 minutes', lingering = version where state = 'running'`)
	b := s.as(api.Viewer)
	b.want(b.get("/"), http.StatusOK, "A task of report.make has run without news for 3 min, on w-1; 99 %",
		"state=running&amp;worker=w-1", "Show running tasks")
	b.want(b.get("/tasks?state=running&worker=w-"), http.StatusOK, "worker: w-", `data-key="report.make/2"`)
	b.want(b.get("/tasks?worker=w-1"), http.StatusOK, `data-key="report.make/1"`, `data-key="report.make/2"`)
	b.want(b.get("/tasks?state=running&worker=w-2"), http.StatusOK, "No task matches")
	b.want(b.get("/kind?name=report.make"), http.StatusOK, "has run without news since")
	ledgertest.ExecAsOwner(t, s.db, `update taskledger.task set updated_at = now()`)
	if p := b.get("/"); strings.Contains(p.body, "without news") {
		t.Errorf("a task with news is stuck still:\n%s", p.body)
	}
}

// A task of a kind with many quick attempts is stuck after 20 seconds. Each of its tasks is counted.
func TestQuickKindIsStuckSoon(t *testing.T) {
	t.Parallel()
	s := serve(t)
	start := ledger.AppendRequest{Type: ledger.EventStarted, Actor: "w-1"}
	for n := range 102 {
		k := ledgertest.Key(t, fmt.Sprintf("label.print/%d", n))
		ledgertest.Enqueue(t, s.db, k, `{}`)
		events := []ledger.AppendRequest{start, {Type: ledger.EventSucceeded, Actor: "w-1",
			Data: []byte(`{"duration_ms":80}`)}}
		if n >= 100 {
			events = events[:1]
		}
		s.appendAll(k, events...)
	}
	s.project()
	ledgertest.ExecAsOwner(t, s.db, `update taskledger.task
		set updated_at = now() - interval '30 seconds', lingering = version where state = 'running'`)
	b := s.as(api.Viewer)
	b.want(b.get("/"), http.StatusOK, "2 tasks of label.print have run without news, the longest for ",
		", on w-1; 99 %")
}

// The pages of a task and of its kind name the concurrency limit for which tasks wait, and the command that changes it.
func TestTaskWaitsForItsLimit(t *testing.T) {
	t.Parallel()
	s := serve(t)
	k := ledgertest.Key(t, "export.run/e-1")
	ledgertest.Enqueue(t, s.db, k, `{}`)
	s.project()
	limit := ledger.StartLimit{Name: "exports", Kinds: map[ledger.Kind]int{"export.run": 1}, MaxRunning: new(0)}
	if err := ledger.SetStartLimit(t.Context(), ledgertest.As(t, s.db, "operator"), limit, ""); err != nil {
		t.Fatal(err)
	}
	b := s.as(api.Viewer)
	for _, path := range []string{"/task?" + keyOf(k), "/kind?name=export.run"} {
		b.want(b.get(path), http.StatusOK, "exports", "0 of 0", "in use", "taskledger limit exports",
			`href="/limits?name=exports"`)
	}
	b.want(b.get("/limits?name=exports"), http.StatusOK, "exports", "0 of 0", "export.run", "oldest wait")
}

// The page of a task in line leads to the task whose turn it is, states why that one does not begin, and lists the
// first tasks of the line. Tasks of kinds that the caller may not use have no names.
func TestTaskInLine(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for n, kind := range []ledger.Kind{"account.book", "invoice.send", "invoice.send", "account.book"} {
		k := ledger.Key{Kind: kind, BizID: ledger.BizID(fmt.Sprint("b-", n))}
		o := &ledger.EnqueueOptions{OrderKey: "customer/<17>"}
		if _, err := ledger.Enqueue(t.Context(), s.db, k, nil, o); err != nil {
			t.Fatal(err)
		}
	}
	keeper := ledgertest.As(t, s.db, "relay")
	if _, err := keeper.Exec(t.Context(), "select taskledger_internal.advance_lines('{customer/<17>}')"); err != nil {
		t.Fatal(err)
	}
	s.project()
	const head, last = "/task?biz_id=b-0&amp;kind=account.book", "/task?biz_id=b-3&amp;kind=account.book"
	b := s.as(api.Viewer)
	p := b.get("/task?kind=invoice.send&biz_id=b-1")
	b.want(p, http.StatusOK, "It is second in line", "for a worker. That task does not begin because no live worker",
		`<a class="button" href="`+head+`"><span>Show <bdi>account.book/b-0</bdi>`, "First in line",
		"customer/&lt;17&gt;", "this task", last,
		"All tasks of the line", `<span class="state lined_up">lined up</span>`)
	p = b.get("/task?kind=account.book&biz_id=b-0")
	b.want(p, http.StatusOK, "First in line")
	if strings.Contains(p.body, `class="button" href="`+head) {
		t.Errorf("the head of the line blocks itself:\n%s", p.content())
	}
	p = s.as(api.Viewer, "invoice.*").get("/task?kind=invoice.send&biz_id=b-1")
	b.want(p, http.StatusOK, "A task of another kind is first", "First in line", ">a task of another kind<",
		"b-2")
	if strings.Contains(p.body, "account.book") {
		t.Errorf("the page names a task of another kind:\n%s", p.content())
	}
	b.want(b.get("/events"), http.StatusOK, ">lined up<")
}

// The page of a running task names the loss of its worker.
func TestRunningOnALostWorker(t *testing.T) {
	t.Parallel()
	s := serve(t)
	k := ledgertest.Key(t, "image.render/i-1")
	ledgertest.Enqueue(t, s.db, k, `{}`)
	s.appendAll(k, ledger.AppendRequest{Type: ledger.EventStarted, Actor: "w-1"})
	s.project()
	b := s.as(api.Viewer)
	lease := func(interval string) {
		t.Helper()
		ledgertest.ExecAsOwner(t, s.db, `insert into taskledger.lease (name, holder, since, alive_until, detail) values
			('worker/w-1', 'w-1', now(), now() + '`+interval+`', '{"kinds":["image.render"],"shards":"all"}')
			on conflict (name) do update set alive_until = excluded.alive_until`)
	}
	lease("1 hour")
	if p := b.get("/task?" + keyOf(k)); p.status != http.StatusOK || strings.Contains(p.body, "Its worker is lost") {
		t.Errorf("status %d; the worker is alive:\n%s", p.status, p.content())
	}
	lease("-1 minute")
	b.want(b.get("/task?"+keyOf(k)), http.StatusOK, "Its worker is lost", "No live worker handles the kind")
}

// The page of a running task shows its newest progress, and that of a long history its newest events.
func TestProgressAndLongHistory(t *testing.T) {
	t.Parallel()
	s := serve(t)
	k := ledgertest.Key(t, "customer.export/c-1")
	ledgertest.Enqueue(t, s.db, k, `{}`)
	events := []ledger.AppendRequest{{Type: ledger.EventStarted, Actor: "w-1"}}
	for range 230 {
		events = append(events, ledger.AppendRequest{Type: ledger.EventProgressed, Actor: "w-1",
			Data: []byte(`{"progress":{"done":30,"total":120}}`)})
	}
	s.appendAll(k, events...)
	s.project()
	b := s.as(api.Viewer)
	b.want(b.get("/task?"+keyOf(k)), http.StatusOK, "Attempt 1 runs on w-1", "Progress of the attempt: 25 %",
		`data-key="e232"`, `data-key="e33"`, "Earlier events")
	earlier := b.get("/task?version=32&" + keyOf(k))
	b.want(earlier, http.StatusOK, "As of version 32 of 232", `data-key="e1"`)
	b.want(b.get("/task?version=210&"+keyOf(k)), http.StatusOK, "As of version 210 of 232", `data-key="e210"`)
}
