package periodic_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/schedules"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/periodic"
)

// A paused schedule does not fire. It continues when it is resumed, and the firings that were due meanwhile are
// recorded.
func TestPauseResume(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := hourly("a")
	s.Missed = periodic.MissedAll
	b.apply(s)
	for range 2 { // the second time changes nothing
		if err := periodic.Pause(t.Context(), b.db, "a", "alice", ""); err != nil {
			t.Fatal(err)
		}
	}
	if s := b.load("a"); !s.Paused || s.Actor != "alice" || s.Revision != 2 {
		t.Errorf("%+v", s)
	}
	b.due("a", "4 hours")
	b.pass(b.runner(), 0)
	if fired := b.fired("a"); len(fired) != 0 {
		t.Fatalf("paused, it fired %v", fired)
	}
	if s, err := schedules.ReadSummary(t.Context(), b.db); err != nil || !slices.Equal(s.PausedNames, []string{"a"}) {
		t.Errorf("paused schedules: %+v, %v", s, err)
	}
	for range 2 {
		if err := periodic.Resume(t.Context(), b.db, "a", "bob", ""); err != nil {
			t.Fatal(err)
		}
	}
	after := b.load("a")
	if after.Paused || after.Actor != "bob" || after.Revision != 3 || after.Passed != 4 {
		t.Errorf("resumed: %+v", after)
	}
	if until := time.Until(after.NextAt); until < 0 || until > time.Hour {
		t.Errorf("resumed: next in %s", until)
	}
	b.pass(b.runner(), 0)
	passed := b.passed("a")
	if fired := b.fired("a"); len(fired) != 0 || len(passed) != 1 {
		t.Fatalf("fired %v, passed over %v", fired, passed)
	}
	d := b.discardedData(ledger.Key{Kind: "report.make", BizID: ledger.BizID(passed[0])})
	if d["reason"] != "paused" || d["firings"] != 4.0 {
		t.Errorf("%v", d)
	}
}

// A paused schedule shows since when, by whom and why it is paused, even after another actor has changed it.
func TestPauseKeepsItsReason(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(hourly("a"))
	pause := func(actor, reason string) {
		t.Helper()
		if err := periodic.Pause(t.Context(), b.db, "a", actor, reason); err != nil {
			t.Fatal(err)
		}
	}
	pauseOf := func() [2]string { s := b.load("a"); return [2]string{s.PausedBy, s.PauseReason} }
	pause("alice", "the CRM is gone")
	since := b.load("a").PausedAt
	daily := hourly("a")
	daily.Cron = "0 3 * * *"
	o := &periodic.ApplyOptions{Actor: "bob"}
	if _, err := periodic.Apply(t.Context(), b.db, []periodic.Schedule{daily}, o); err != nil {
		t.Fatal(err)
	}
	pause("eve", "")                // changes nothing
	pause("eve", "the CRM is gone") // changes nothing
	if s := b.load("a"); !s.Paused || pauseOf() != [2]string{"alice", "the CRM is gone"} || s.Actor != "bob" {
		t.Errorf("%+v", s)
	}
	pause("carol", "the CRM moves")
	s := b.load("a")
	if pauseOf() != [2]string{"carol", "the CRM moves"} || !s.PausedAt.Equal(since) || since.IsZero() {
		t.Errorf("another reason: %+v", s)
	}
	if err := periodic.Resume(t.Context(), b.db, "a", "bob", "it is back"); err != nil {
		t.Fatal(err)
	}
	if s := b.load("a"); s.Paused || pauseOf() != [2]string{} || !s.PausedAt.IsZero() {
		t.Errorf("resumed: %+v", s)
	}
}

// Each change of a schedule is recorded with its actor, if and only if it is committed.
func TestChangesAreOnRecord(t *testing.T) {
	t.Parallel()
	b := setup(t)
	applyAs := func(actor string, schedules ...periodic.Schedule) {
		t.Helper()
		o := &periodic.ApplyOptions{Actor: actor, Prune: true}
		if _, err := periodic.Apply(t.Context(), b.db, schedules, o); err != nil {
			t.Fatal(err)
		}
	}
	daily := hourly("a")
	daily.Cron, daily.Args = "0 3 * * *", []byte(`"`+strings.Repeat("x", 200<<10)+`"`)
	applyAs("alice", hourly("a"))
	applyAs("eve", hourly("a")) // changes nothing
	applyAs("bob", daily)
	tx, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(periodic.Pause(t.Context(), tx, "a", "eve", ""), tx.Rollback(t.Context())); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time changes nothing
		if err := periodic.Pause(t.Context(), b.db, "a", "carol", "month end"); err != nil {
			t.Fatal(err)
		}
	}
	if err := periodic.Resume(t.Context(), b.db, "a", "", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := periodic.RunNow(t.Context(), b.db, "a", "fay", "missed one"); err != nil {
		t.Fatal(err)
	}
	var invalid *ledger.InvalidError
	if err := periodic.Pause(t.Context(), b.db, "a", "gus", strings.Repeat("x", 4097)); !errors.As(err, &invalid) {
		t.Errorf("a long reason: %v", err)
	}
	if err := periodic.Remove(t.Context(), b.db, "a", "dave", ""); err != nil {
		t.Fatal(err)
	}
	rows, err := b.db.Query(t.Context(), `
		select concat_ws(' ', min(actor), string_agg(type::text, '+' order by version),
			min(data->>'schedule'), min(data->>'action'), min(data->>'reason'),
			(select string_agg(f->>'field', ',')
			   from json_array_elements((array_agg(data order by version))[1]->'fields') f))
		from taskledger.event where kind = 'taskledger.schedule' group by biz_id order by min(position)`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"alice enqueued+succeeded a create kind,args,cron,zone,missed,overlap",
		"bob enqueued+succeeded a change args,cron",
		"carol enqueued+succeeded a pause month end",
		one[string](b, "select session_user::text") + " enqueued+succeeded a resume",
		"fay enqueued+succeeded a run missed one",
		"dave enqueued+succeeded a delete",
	}
	if diff := difference.Of(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	ledgertest.Check(t, b.db)
}

// A manual run is a task in addition to the firings.
func TestRunNow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(hourly("a"))
	if err := periodic.Pause(t.Context(), b.db, "a", "", ""); err != nil {
		t.Fatal(err)
	}
	before := b.load("a")
	answer, err := periodic.RunNow(t.Context(), b.db, "a", "alice", "")
	if err != nil {
		t.Fatal(err)
	}
	id := string(answer.Key.BizID)
	if !answer.New || !strings.HasPrefix(id, "a@2") || !strings.HasSuffix(id, "Z+manual") {
		t.Errorf("%+v", answer)
	}
	task, err := ledger.Load(t.Context(), b.db, answer.Key)
	if err != nil || task.Actor != "alice" || string(task.Args) != `{"of": "sales"}` {
		t.Errorf("%+v, %v", task, err)
	}
	if after := b.load("a"); !after.NextAt.Equal(before.NextAt) || after.LastTask != nil {
		t.Errorf("the schedule moved on: %+v", after)
	}
}

func TestUnknownSchedule(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, run := periodic.RunNow(t.Context(), b.db, "a", "", "")
	_, load := periodic.Load(t.Context(), b.db, "a")
	for what, err := range map[string]error{
		"run": run, "load": load,
		"pause":  periodic.Pause(t.Context(), b.db, "a", "", ""),
		"resume": periodic.Resume(t.Context(), b.db, "a", "", ""),
		"remove": periodic.Remove(t.Context(), b.db, "a", "", ""),
	} {
		if !errors.Is(err, periodic.ErrUnknownSchedule) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var invalid *ledger.InvalidError
	if _, err := periodic.Load(t.Context(), b.db, ""); !errors.As(err, &invalid) {
		t.Errorf("no name: %v", err)
	}
}
