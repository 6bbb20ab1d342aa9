package periodic_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/periodic"
)

func TestApplyShowsWhatDiffers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a, c := hourly("a"), periodic.Schedule{Name: "c", Kind: "tick", Every: 90 * time.Minute}
	want := []periodic.Difference{
		{Name: "a", Action: periodic.Create, Fields: []periodic.Field{
			{Name: "kind", To: "report.make"}, {Name: "args", To: `{"of": "sales"}`}, {Name: "cron", To: a.Cron},
			{Name: "zone", To: "Europe/Berlin"}, {Name: "missed", To: "one"}, {Name: "overlap", To: "allow"}}},
		{Name: "c", Action: periodic.Create, Fields: []periodic.Field{
			{Name: "kind", To: "tick"}, {Name: "every", To: "1h30m"}, {Name: "anchor", To: "1970-01-01T00:00:00Z"},
			{Name: "missed", To: "one"}, {Name: "overlap", To: "allow"}}},
	}
	dry, err := periodic.Apply(t.Context(), b.db, []periodic.Schedule{c, a}, &periodic.ApplyOptions{DryRun: true})
	if diff := difference.Of(want, dry); diff != "" || err != nil {
		t.Errorf("dry run: %v (-want +got):\n%s", err, diff)
	}
	if all, err := periodic.ReadSchedules(t.Context(), b.db, "", lists.All); len(all) != 0 || err != nil {
		t.Fatalf("after a dry run: %+v, %v", all, err)
	}
	if diff := difference.Of(want, b.apply(c, a)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	keep := []periodic.Difference{{Name: "a", Action: periodic.Keep}, {Name: "c", Action: periodic.Keep}}
	if diff := difference.Of(keep, b.apply(a, c)); diff != "" {
		t.Errorf("again (-want +got):\n%s", diff)
	}
	if n := one[int](b, "select count(*)::integer from taskledger.event where kind <> 'taskledger.schedule'"); n != 0 {
		t.Errorf("applying left %d events", n)
	}

	before := a.Cron
	a.Cron = "5,6 * * * *"
	o := &periodic.ApplyOptions{Prune: true, Actor: "alice"}
	pruned, err := periodic.Apply(t.Context(), b.db, []periodic.Schedule{a}, o)
	want = []periodic.Difference{
		{Name: "a", Action: periodic.Change, Fields: []periodic.Field{{Name: "cron", From: before, To: "5,6 * * * *"}}},
		{Name: "c", Action: periodic.Delete},
	}
	if diff := difference.Of(want, pruned); diff != "" || err != nil {
		t.Errorf("changed: %v (-want +got):\n%s", err, diff)
	}
	if s := b.load("a"); s.Revision != 2 || s.Actor != "alice" || s.NextAt.Minute() < 5 || s.NextAt.Minute() > 6 {
		t.Errorf("%+v", s)
	}
	if _, err := periodic.Load(t.Context(), b.db, "c"); !errors.Is(err, periodic.ErrUnknownSchedule) {
		t.Errorf("load the deleted schedule: %v", err)
	}
}

// A schedule keeps its position unless its times change. New times begin now, and firings of the old times that
// are due are recorded.
func TestApplyKeepsThePosition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := hourly("a")
	b.apply(s)
	b.due("a", "3 hours")
	before := b.load("a")
	s.Args, s.Overlap = json.RawMessage(`2`), periodic.OverlapSkip
	b.apply(s)
	if after := b.load("a"); !after.NextAt.Equal(before.NextAt) || string(after.Schedule.Args) != "2" {
		t.Errorf("%+v", after)
	}
	if err := periodic.Pause(t.Context(), b.db, "a", "", ""); err != nil {
		t.Fatal(err)
	}
	s.Cron = "0,30 * * * *"
	b.apply(s)
	after := b.load("a")
	if until := time.Until(after.NextAt); until < 0 || until > time.Hour || after.Passed != 3 || !after.Paused {
		t.Errorf("with new times: %+v", after)
	}
	passed := b.passed("a")
	if len(passed) != 1 {
		t.Fatalf("passed over %v, want one record", passed)
	}
	key := ledger.Key{Kind: "report.make", BizID: ledger.BizID(passed[0])}
	if reason := b.discardedData(key)["reason"]; reason != "changed" {
		t.Errorf("passed over because of %v", reason)
	}
}

// Concurrent calls of Apply run one after the other.
func TestApplyRaces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var racing sync.WaitGroup
	for i := range 8 {
		racing.Go(func() {
			s := hourly("a")
			s.Args = json.RawMessage(strings.Repeat("1", i+1))
			if _, err := periodic.Apply(t.Context(), b.db, []periodic.Schedule{s}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	racing.Wait()
	if s := b.load("a"); s.Revision != 8 {
		t.Errorf("revision %d after eight definitions", s.Revision)
	}
}

// Apply is part of the caller's transaction.
func TestApplyInATransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := periodic.Apply(t.Context(), tx, []periodic.Schedule{hourly("a")}, nil); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all, err := periodic.ReadSchedules(t.Context(), b.db, "", lists.All); len(all) != 0 || err != nil {
		t.Errorf("after the rollback: %+v, %v", all, err)
	}
}

// An open transaction that changes a schedule blocks the firings of that schedule only. Others fire, with fixed
// times or with a fixed delay.
func TestApplyInATransactionThatStaysOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	delayed := func(name string) periodic.Schedule {
		return periodic.Schedule{Name: name, Kind: "test.k", FixedDelay: time.Second}
	}
	secondly := periodic.Schedule{Name: "secondly", Kind: "test.k", Every: time.Second}
	b.apply(hourly("changed"), delayed("changed.too"), delayed("delayed"), secondly)
	b.run(b.runner())
	for _, name := range []string{"delayed", "changed.too", "secondly"} {
		b.await(name+" to fire", func() bool { return len(b.fired(name)) > 0 })
	}
	tx, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	changed, too := hourly("changed"), delayed("changed.too")
	changed.Args, too.Args = []byte("1"), []byte("1")
	all := []periodic.Schedule{changed, too, hourly("new"), delayed("delayed"), secondly}
	if _, err := periodic.Apply(t.Context(), tx, all, nil); err != nil {
		t.Fatal(err)
	}
	n := len(b.fired("secondly"))
	b.await("firings by the clock", func() bool { return len(b.fired("secondly")) > n+1 })
	ledgertest.ExecAsOwner(t, b.db, `insert into taskledger.event (xid, version, attempt, shard, type, kind, biz_id)
		select pg_current_xact_id(), e.version + 1, 1, e.shard, 'succeeded', e.kind, e.biz_id
		  from taskledger.event e where e.biz_id ~ '^(delayed|changed.too)@'`)
	b.await("a firing after the end of the previous task", func() bool { return len(b.fired("delayed")) > 1 })
	if n := len(b.fired("changed.too")); n != 1 {
		t.Errorf("the schedule that is being changed fired %d times", n)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.await("a firing of the changed schedule", func() bool { return len(b.fired("changed.too")) > 1 })
}

// Every fault is reported with its field and its schedule, and nothing is changed.
func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	large := json.RawMessage(`"` + strings.Repeat("x", 300_000) + `"`)
	deep := json.RawMessage(strings.Repeat("[", 600) + strings.Repeat("]", 600))
	for _, test := range []struct {
		name string
		s    periodic.Schedule
		want []string
	}{
		{
			name: "empty", s: periodic.Schedule{},
			want: []string{"invalid name", "invalid kind", "exactly one of cron, every and fixed_delay"},
		},
		{
			name: "two rules", s: periodic.Schedule{Name: "s", Kind: "k", Cron: "* * * * *", Every: time.Hour},
			want: []string{"exactly one of"},
		},
		{
			name: "name and kind", s: periodic.Schedule{Name: "a b", Kind: "a/b", Every: time.Hour},
			want: []string{`invalid name "a b"`, `invalid kind "a/b"`},
		},
		{
			name: "cron and zone", s: periodic.Schedule{Name: "s", Kind: "k", Cron: "* * *", Zone: "Mars"},
			want: []string{`invalid cron "* * *"`, `invalid zone "Mars"`},
		},
		{
			name: "never", s: periodic.Schedule{Name: "s", Kind: "k", Cron: "0 0 30 2 *"},
			want: []string{"a day that exists"},
		},
		{
			name: "negative", s: periodic.Schedule{Name: "s", Kind: "k", Every: -time.Hour},
			want: []string{`invalid every "-1h0m0s": must be between 1s and`},
		},
		{
			name: "too often", s: periodic.Schedule{Name: "s", Kind: "k", FixedDelay: time.Millisecond},
			want: []string{`invalid fixed_delay "1ms"`},
		},
		{
			name: "too fine", s: periodic.Schedule{Name: "s", Kind: "k", Every: time.Second + time.Nanosecond},
			want: []string{"whole milliseconds"},
		},
		{
			name: "anchor",
			s: periodic.Schedule{
				Name: "s", Kind: "k", Every: time.Hour,
				Anchor: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC),
			},
			want: []string{"invalid anchor"},
		},
		{
			name: "policies",
			s: periodic.Schedule{
				Name: "s", Kind: "k", Every: time.Hour,
				Missed: "some", Overlap: "no", MissedLimit: 1,
			},
			want: []string{`invalid missed "some"`, `invalid overlap "no"`, "invalid missed_limit"},
		},
		{
			name: "limit",
			s: periodic.Schedule{
				Name: "s", Kind: "k", Every: time.Hour,
				Missed: periodic.MissedAll, MissedLimit: 1001,
			},
			want: []string{"must be between 1 and 1000"},
		},
		{
			name: "with a fixed delay",
			s: periodic.Schedule{
				Name: "s", Kind: "k", FixedDelay: time.Hour,
				Missed: "one", Overlap: "skip", Zone: "UTC", Anchor: time.Unix(1, 0),
			},
			want: []string{"missed", "overlap", "zone", "anchor"},
		},
		{
			name: "not JSON", s: periodic.Schedule{Name: "s", Kind: "k", Every: time.Hour, Args: json.RawMessage("{")},
			want: []string{"invalid args: must be JSON"},
		},
		{
			name: "large args", s: periodic.Schedule{Name: "s", Kind: "k", Every: time.Hour, Args: large},
			want: []string{"invalid args: must have at most 262144 bytes"},
		},
		{
			name: "deep args", s: periodic.Schedule{Name: "s", Kind: "k", Every: time.Hour, Args: deep},
			want: []string{"invalid args: must nest at most 512 levels deep"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := periodic.Apply(t.Context(), b.db, []periodic.Schedule{hourly("good"), test.s}, nil)
			var invalid *ledger.InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("%v", err)
			}
			for _, part := range append(test.want, `schedule "`+test.s.Name+`"`) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("no %q in:\n%v", part, err)
				}
			}
		})
	}
	_, err := periodic.Apply(t.Context(), b.db, []periodic.Schedule{hourly("a"), hourly("a")}, nil)
	if err == nil || !strings.Contains(err.Error(), "once") {
		t.Errorf("a repeated name: %v", err)
	}
	if all, err := periodic.ReadSchedules(t.Context(), b.db, "", lists.All); len(all) != 0 || err != nil {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	want := []periodic.Schedule{
		{
			Name: "a", Kind: "k", Args: json.RawMessage(`{"n": 1}`), Cron: "0 9 * * MON", Zone: "Asia/Tokyo",
			Overlap: "skip",
		},
		{
			Name: "b", Kind: "k", Every: 15 * time.Minute, Anchor: time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC),
			Missed: "all", MissedLimit: 5,
		},
		{Name: "c", Kind: "k", FixedDelay: 90 * time.Second},
	}
	text := `{"schedules": [
		{"name": "a", "kind": "k", "args": {"n": 1}, "cron": "0 9 * * MON", "zone": "Asia/Tokyo",
		 "overlap": "skip"},
		{"name": "b", "kind": "k", "every": "15m", "anchor": "2026-01-01T09:00:00Z",
		 "missed": "all", "missed_limit": 5},
		{"name": "c", "kind": "k", "fixed_delay": "90s"}]}`
	got, err := periodic.Parse([]byte(text))
	if diff := difference.Of(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	again, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	got, err = periodic.Parse(again)
	for i := range want {
		want[i].Args = bytes.ReplaceAll(want[i].Args, []byte(" "), nil)
	}
	if diff := difference.Of(want, got); diff != "" || err != nil {
		t.Errorf("encoded and parsed again: %v (-want +got):\n%s", err, diff)
	}
	for text, want := range map[string]string{
		``:                                       `invalid schedules`,
		`{`:                                      `invalid schedules`,
		`5`:                                      `invalid schedules`,
		`{} {}`:                                  `after top-level value`,
		`{"plans": []}`:                          `invalid plans: is not a member`,
		`{"schedules": [], "Schedules": []}`:     `invalid Schedules: is not a member`,
		`[{"name": "a", "kind": 1, "Kind": 2}]`:  `invalid Kind: is not a member`,
		`[{"name": "a", "name": "b"}]`:           `invalid name: must be given once`,
		`{"schedules": 5}`:                       `invalid schedules: must not be a number`,
		`[{"name": 5}]`:                          `invalid name: must not be a number`,
		`[{"nmae": "a"}]`:                        `invalid nmae: is not a member`,
		`[{"name": "a", "mised": "skip"}]`:       `schedule "a": invalid mised: is not a member`,
		`[{"name": "a", "every": "1d"}]`:         `schedule "a": invalid every "1d"`,
		`[{"name": "a", "every": "0s"}]`:         `invalid every "0s"`,
		`[{"name": "a", "fixed_delay": "soon"}]`: `invalid fixed_delay "soon"`,
		`[{"name": "a", "anchor": "today"}]`:     `invalid anchor "today"`,
		`[{"name": "a", "missed_limit": 1.5}]`:   `invalid missed_limit: must not be a number 1.5`,
	} {
		var invalid *ledger.InvalidError
		if _, err := periodic.Parse([]byte(text)); !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"schedules": [{"name": "a", "kind": "k", "cron": "0 9 * * MON", "zone": "Asia/Tokyo"}]}`))
	f.Add([]byte(`[{"name": "b", "kind": "k", "every": "15m", "anchor": "2026-01-01T09:00:00Z"}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		schedules, err := periodic.Parse(text)
		if err != nil {
			return
		}
		for _, s := range schedules {
			if s.Validate() != nil {
				continue
			}
			again, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			var back periodic.Schedule
			if err := json.Unmarshal(again, &back); err != nil || back.Validate() != nil {
				t.Fatalf("%s: %v, %v", again, err, back.Validate())
			}
		}
	})
}

// A role that may only connect cannot stop Apply by an advisory lock.
func TestApplyBesideAForeignLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ledgertest.HoldAdvisoryLocks(t, b.db, "taskledger.schedule")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := periodic.Apply(ctx, b.db, []periodic.Schedule{hourly("a")}, nil); err != nil {
		t.Fatal(err)
	}
}

// A list without schedules is refused: a failed template leaves one, and it would delete every schedule.
func TestApplyOfNothingDeletesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(hourly("a"))
	var invalid *ledger.InvalidError
	for _, text := range []string{`null`, `{}`, `[]`, `{"schedules":null}`, `{"schedules":[]}`, ` [ ] `} {
		if found, err := periodic.Parse([]byte(text)); !errors.As(err, &invalid) || found != nil {
			t.Errorf("%s: %v, %v", text, found, err)
		}
	}
	for _, o := range []*periodic.ApplyOptions{{Prune: true}, {Prune: true, DryRun: true}} {
		if _, err := periodic.Apply(t.Context(), b.db, nil, o); !errors.As(err, &invalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	b.load("a")
}
