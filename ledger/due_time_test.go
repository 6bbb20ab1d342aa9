package ledger_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// timer is a row of the table timer.
type timer struct {
	DueAt   time.Time
	Key     ledger.Key
	Version ledger.Version
	Reason  string
}

func timers(t *testing.T, db ledger.DB) []timer {
	t.Helper()
	rows, err := db.Query(t.Context(), "select due_at, kind, biz_id, version, reason from taskledger.timer order by due_at, kind, biz_id, version, reason")
	if err != nil {
		t.Fatal(err)
	}
	var all []timer
	var row timer
	_, err = pgx.ForEachRow(rows, []any{&row.DueAt, (*string)(&row.Key.Kind), (*string)(&row.Key.BizID), (*int32)(&row.Version), &row.Reason},
		func() error {
			row.DueAt = row.DueAt.UTC()
			all = append(all, row)
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// appendBoth are the two ways to append a request, which must do the same.
var appendBoth = map[string]func(*testing.T, ledger.DB, ledger.AppendRequest) (ledger.Event, error){
	"Append": func(t *testing.T, db ledger.DB, r ledger.AppendRequest) (ledger.Event, error) {
		return ledger.Append(t.Context(), db, r)
	},
	"AppendEach": func(t *testing.T, db ledger.DB, r ledger.AppendRequest) (ledger.Event, error) {
		other := ledger.AppendRequest{Key: ledger.Key{Kind: "append", BizID: r.Key.BizID + "/other"}, Expected: 1, Type: ledger.EventSucceeded}
		ledgertest.Enqueue(t, db, other.Key, "")
		results := ledger.AppendEach(t.Context(), db, []ledger.AppendRequest{other, r})
		if results[0].Err != nil {
			t.Error(results[0].Err)
		}
		return results[1].Event, results[1].Err
	},
}

// The moment is decided by the database, written into the data with every other byte as it was,
// set as a timer, and folded.
func TestAppendSetsATimer(t *testing.T) {
	t.Parallel()
	at := time.Date(2101, 2, 3, 4, 5, 6, 123456789, time.FixedZone("", -5*3600))
	const written = `"2101-02-03T09:05:06.123456Z"` // PostgreSQL's resolution
	for name, appendOne := range appendBoth {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t)
			for id, test := range map[ledger.BizID]struct {
				eventType ledger.EventType
				data      string
				want      string
			}{
				"failed":          {ledger.EventFailed, `{ "error" : {"message":"a \\ \u0000 b"} }`, `{"retry_at":` + written + `, "error" : {"message":"a \\ \u0000 b"} }`},
				"snoozed":         {ledger.EventSnoozed, "", `{"run_at":` + written + `}`},
				"snoozed empty":   {ledger.EventSnoozed, " {\n} ", `{"run_at":` + written + `}`},
				"scheduled":       {ledger.EventScheduled, "\t{\"reason\":\"later\",\"a\":1,\"a\":2}", `{"run_at":` + written + `,"reason":"later","a":1,"a":2}`},
				"scheduled other": {ledger.EventScheduled, `{"retry_at":"mine"}`, `{"run_at":` + written + `,"retry_at":"mine"}`},
			} {
				r := appending(id, 1, test.eventType)
				if r.At = at; test.data != "" {
					r.Data = json.RawMessage(test.data)
				}
				ledgertest.Enqueue(t, pool, r.Key, "")
				e, err := appendOne(t, pool, r)
				if err != nil || string(e.Data) != test.want {
					t.Errorf("%s: %v, data %s, want %s", id, err, e.Data, test.want)
				}
				history, err := ledger.History(t.Context(), pool, r.Key)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(e, history[1]); diff != "" {
					t.Errorf("%s (-answered +stored):\n%s", id, diff)
				}
				task, err := ledger.Fold(history)
				if want := at.Truncate(time.Microsecond); err != nil || !task.DueAt.Equal(want) {
					t.Errorf("%s: due at %s, %v, want %s", id, task.DueAt, err, want)
				}
			}
			for _, row := range timers(t, pool) {
				if !row.DueAt.Equal(at.Truncate(time.Microsecond)) || row.Version != 2 || row.Reason != map[bool]string{true: "retry", false: "due"}[row.Key.BizID == "failed"] {
					t.Errorf("%+v", row)
				}
			}
			if n := len(timers(t, pool)); n != 5 {
				t.Errorf("%d timers", n)
			}
			ledgertest.Check(t, pool)
		})
	}
}

// A delay counts from when the database appends, whatever the caller's clock says; what is past
// is due now, and no timer lies before the clock at its insert.
func TestDelaysCountByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	for name, appendOne := range appendBoth {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t)
			for id, test := range map[ledger.BizID]struct {
				after, want time.Duration
				at          time.Time
			}{
				"an hour":     {after: time.Hour, want: time.Hour},
				"rounded up":  {after: time.Nanosecond, want: time.Microsecond},
				"the longest": {after: 1<<63 - 1, want: time.Duration(1<<63 - 1).Truncate(time.Microsecond)},
				"yesterday":   {at: time.Now().Add(-24 * time.Hour)},
				"year 1":      {at: time.Time{}.Add(time.Second)},
				"BC":          {at: time.Date(-4000, 1, 1, 0, 0, 0, 0, time.UTC)},
			} {
				r := appending(id, 1, ledger.EventFailed)
				r.After, r.At = test.after, test.at
				ledgertest.Enqueue(t, pool, r.Key, "")
				e, err := appendOne(t, pool, r)
				if err != nil {
					t.Errorf("%s: %v", id, err)
					continue
				}
				// Between the enqueue and recorded_at lies the moment at which the clock was read.
				history, err := ledger.History(t.Context(), pool, r.Key)
				if err != nil {
					t.Fatal(err)
				}
				due := e.DueAt().Add(-test.want)
				if slack := 4 * time.Microsecond; due.Before(history[0].RecordedAt.Add(-slack)) || due.After(e.RecordedAt.Add(slack)) {
					t.Errorf("%s: appended between %s and %s, due at %s", id, history[0].RecordedAt, e.RecordedAt, e.DueAt())
				}
			}
		})
	}
}

func TestAppendRefusesDueTimes(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	tx := beginTx(t, pool, pgx.ReadCommitted)
	ledgertest.Enqueue(t, tx, ledger.Key{Kind: "append", BizID: "1"}, "")
	for name, change := range map[string]func(*ledger.AppendRequest){
		"after negative":         func(r *ledger.AppendRequest) { r.After = -1 },
		"after and at":           func(r *ledger.AppendRequest) { r.After, r.At = 1, time.Now() },
		"at year 9999":           func(r *ledger.AppendRequest) { r.At = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) },
		"at year 9999 in UTC":    func(r *ledger.AppendRequest) { r.At = time.Date(9998, 12, 31, 23, 0, 0, 0, time.FixedZone("", -3600)) },
		"at of scheduled":        func(r *ledger.AppendRequest) { r.Type = ledger.EventScheduled },
		"at of snoozed":          func(r *ledger.AppendRequest) { r.Type = ledger.EventSnoozed },
		"at with succeeded":      func(r *ledger.AppendRequest) { r.Type, r.After = ledger.EventSucceeded, 1 },
		"at with released":       func(r *ledger.AppendRequest) { r.Type, r.After = ledger.EventReleased, 1 },
		"data no object":         func(r *ledger.AppendRequest) { r.After, r.Data = 1, json.RawMessage(`[]`) },
		"data null":              func(r *ledger.AppendRequest) { r.After, r.Data = 1, json.RawMessage(`null`) },
		"data with the member":   func(r *ledger.AppendRequest) { r.After, r.Data = 1, json.RawMessage(`{"retry_at":null}`) },
		"data with it disguised": func(r *ledger.AppendRequest) { r.After, r.Data = 1, json.RawMessage(`{"r\u0065try_at":1}`) },
	} {
		r := appending("1", 1, ledger.EventFailed)
		change(&r)
		_, err := ledger.Append(t.Context(), tx, r)
		if invalid := wantErrorAs[*ledger.InvalidError](t, err); invalid.Field != strings.Fields(name)[0] {
			t.Errorf("%s: %v", name, invalid)
		}
		wantErrorAs[*ledger.InvalidError](t, ledger.AppendEach(t.Context(), tx, []ledger.AppendRequest{r})[0].Err)
	}
	if left := timers(t, tx); len(left) != 0 {
		t.Errorf("timers %v", left)
	}
	wantUsable(t, tx)

	f := newCommitFixture(t)
	r := appending("1", 1, ledger.EventFailed)
	r.After = time.Second
	_, err := f.tx.AppendAndCommit(t.Context(), r)
	wantErrorAs[*ledger.InvalidError](t, err)
}

// An append that does nothing sets no timer.
func TestALostAppendSetsNoTimer(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	for name, appendOne := range appendBoth {
		k := ledger.Key{Kind: "append", BizID: ledger.BizID(name)}
		ledgertest.Append(t, pool, k, ledger.EventStarted)
		r := appending(k.BizID, 1, ledger.EventFailed)
		r.After = time.Second
		_, err := appendOne(t, pool, r)
		wantErrorAs[*ledger.ConflictError](t, err)
		r.Key.BizID = "unknown"
		_, err = appendOne(t, pool, r)
		wantError(t, err, ledger.ErrUnknownTask)
	}
	if left := timers(t, pool); len(left) != 0 {
		t.Errorf("timers %v", left)
	}
}

// Data of a foreign shape has no due time and does no harm.
func TestDueAtOfForeignData(t *testing.T) {
	t.Parallel()
	for _, data := range []string{``, `null`, `[]`, `{`, `{"retry_at":5}`, `{"retry_at":"soon"}`, `{"retry_at":"infinity"}`, `{"run_at":"2101-01-01T00:00:00Z"}`} {
		e := ledger.Event{Version: 2, Type: ledger.EventFailed, Data: json.RawMessage(data)}
		if due := e.DueAt(); !due.IsZero() {
			t.Errorf("%s is due at %s", data, due)
		}
	}
}

// A task put off is due by the database's clock; what is past or nothing is available at once.
func TestEnqueueLater(t *testing.T) {
	t.Parallel()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t)
			want := map[ledger.BizID]time.Duration{"1": time.Millisecond, "2": time.Hour, "3": 100 * 365 * 24 * time.Hour}
			var entries []ledger.Entry
			for id, in := range want {
				entries = append(entries, ledger.Entry{Key: ledger.Key{Kind: "later", BizID: id}, Options: &ledger.EnqueueOptions{RunIn: in}})
			}
			var before, after time.Time
			clock(t, pool, &before)
			w.run(t, pool, func(enqueue enqueuer) {
				answers, err := enqueue(t.Context(), entries)
				if err != nil {
					t.Fatal(err)
				}
				for _, answer := range answers {
					if !answer.New || answer.State != ledger.StateScheduled {
						t.Errorf("%+v", answer)
					}
				}
			})
			clock(t, pool, &after)
			for _, row := range timers(t, pool) {
				task, err := ledger.Load(t.Context(), pool, row.Key)
				if err != nil {
					t.Fatal(err)
				}
				base := task.DueAt.Add(-want[row.Key.BizID])
				if base.Before(before) || base.After(after) || row.DueAt.Before(task.DueAt) || row.Version != 1 || row.Reason != "due" {
					t.Errorf("%+v, due at %s, enqueued between %s and %s", row, task.DueAt, before, after)
				}
			}
			ledgertest.Check(t, pool)
		})
	}
}

// clock reads the database's.
func clock(t *testing.T, db ledger.DB, into *time.Time) {
	t.Helper()
	rows, err := db.Query(t.Context(), "select clock_timestamp()")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.ForEachRow(rows, []any{into}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
}

// A deadline that has passed is due now, and not before the clock at the insert.
func TestADeadlineThatHasPassedIsDueNow(t *testing.T) {
	t.Parallel()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t)
			passed := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
			var before time.Time
			clock(t, pool, &before)
			w.run(t, pool, func(enqueue enqueuer) {
				_, err := enqueue(t.Context(), []ledger.Entry{{Key: ledger.Key{Kind: "late", BizID: "1"},
					Options: &ledger.EnqueueOptions{StartBy: passed, FinishBy: passed}}})
				if err != nil {
					t.Fatal(err)
				}
			})
			all := timers(t, pool)
			if len(all) != 2 || all[0].DueAt.Before(before) {
				t.Errorf("timers %+v, enqueued after %s", all, before)
			}
			task, err := ledger.Load(t.Context(), pool, ledger.Key{Kind: "late", BizID: "1"})
			if err != nil || task.State != ledger.StateAvailable || !task.StartBy.Equal(passed) || !task.FinishBy.Equal(passed) {
				t.Errorf("%+v, %v", task, err)
			}
		})
	}
}

func TestEnqueueRefusesTimes(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	tx := beginTx(t, pool, pgx.ReadCommitted)
	far := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	for field, o := range map[string]ledger.EnqueueOptions{
		"run_in":        {RunIn: -1},
		"run_in both":   {RunIn: 1, RunAt: time.Now()},
		"run_at":        {RunAt: far},
		"start_by":      {StartBy: far},
		"finish_by":     {FinishBy: far},
		"meta known":    {Meta: ledger.Meta{StartBy: time.Now()}},
		"meta in extra": {Meta: ledger.Meta{Extra: map[string]json.RawMessage{"run_at": json.RawMessage(`1`)}}},
	} {
		for _, enqueue := range []enqueuer{oneByOne(tx), together(tx)} {
			_, err := enqueue(t.Context(), []ledger.Entry{{Key: ledger.Key{Kind: "bad", BizID: "1"}, Options: &o}})
			if invalid := wantErrorAs[*ledger.InvalidError](t, err); invalid.Field != strings.Fields(field)[0] {
				t.Errorf("%s: %v", field, invalid)
			}
		}
	}
	wantUsable(t, tx)
}
