package ledger_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
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

// timers returns all rows of the table timer.
func timers(t *testing.T, db ledger.DB) []timer {
	t.Helper()
	const sql = `select due_at, kind, biz_id, version, reason from taskledger.timer
		order by due_at, kind, biz_id, version, reason`
	rows, err := db.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	var all []timer
	var row timer
	into := []any{
		&row.DueAt, (*string)(&row.Key.Kind), (*string)(&row.Key.BizID), (*int32)(&row.Version), &row.Reason,
	}
	_, err = pgx.ForEachRow(rows, into, func() error {
		row.DueAt = row.DueAt.UTC()
		all = append(all, row)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// appenders are the two functions that append one request. They must write the same.
var appenders = map[string]func(*testing.T, ledger.DB, ledger.AppendRequest) (ledger.Event, error){
	"Append": func(t *testing.T, db ledger.DB, r ledger.AppendRequest) (ledger.Event, error) {
		return ledger.Append(t.Context(), db, r)
	},
	"AppendEach": func(t *testing.T, db ledger.DB, r ledger.AppendRequest) (ledger.Event, error) {
		other := appending(r.Key.BizID+"/other", 1, ledger.EventSucceeded)
		ledgertest.Enqueue(t, db, other.Key, "")
		results := ledger.AppendEach(t.Context(), db, []ledger.AppendRequest{other, r})
		if results[0].Err != nil {
			t.Error(results[0].Err)
		}
		return results[1].Event, results[1].Err
	},
}

// The database writes the due time into the data, sets a timer, and leaves all other bytes of the data unchanged.
// The fold returns the due time.
func TestAppendSetsATimer(t *testing.T) {
	t.Parallel()
	at := time.Date(2101, 2, 3, 4, 5, 6, 123456789, time.FixedZone("", -5*3600))
	const written = `"2101-02-03T09:05:06.123456Z"` // with the resolution of PostgreSQL
	for name, appendOne := range appenders {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t, ledgertest.App, "operator")
			for id, test := range map[ledger.BizID]struct {
				eventType ledger.EventType
				data      string
				want      string
			}{
				"failed": {
					eventType: ledger.EventFailed,
					data:      `{ "error" : {"message":"a \\ \u0000 b"} }`,
					want:      `{"retry_at":` + written + `, "error" : {"message":"a \\ \u0000 b"} }`,
				},
				"snoozed": {
					eventType: ledger.EventSnoozed,
					want:      `{"run_at":` + written + `}`,
				},
				"snoozed empty": {
					eventType: ledger.EventSnoozed,
					data:      " {\n} ",
					want:      `{"run_at":` + written + `}`,
				},
				"scheduled": {
					eventType: ledger.EventScheduled,
					data:      "\t{\"reason\":\"later\",\"a\":1,\"a\":2}",
					want:      `{"run_at":` + written + `,"reason":"later","a":1,"a":2}`,
				},
				"scheduled other": {
					eventType: ledger.EventScheduled,
					data:      `{"retry_at":"mine"}`,
					want:      `{"run_at":` + written + `,"retry_at":"mine"}`,
				},
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
				if diff := difference.Of(e, history[1]); diff != "" {
					t.Errorf("%s (-returned +stored):\n%s", id, diff)
				}
				task, err := ledger.Fold(history)
				if want := at.Truncate(time.Microsecond); err != nil || !task.DueAt.Equal(want) {
					t.Errorf("%s: due at %s, %v, want %s", id, task.DueAt, err, want)
				}
			}
			for _, row := range timers(t, pool) {
				reason := "due"
				if row.Key.BizID == "failed" {
					reason = "retry"
				}
				if !row.DueAt.Equal(at.Truncate(time.Microsecond)) || row.Version != 2 || row.Reason != reason {
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

// A delay counts from the append by the database's clock. A time in the past is due now: no timer is earlier than
// the clock at its insert.
func TestDelaysCountByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	for name, appendOne := range appenders {
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
				r.In, r.At = test.after, test.at
				ledgertest.Enqueue(t, pool, r.Key, "")
				e, err := appendOne(t, pool, r)
				if err != nil {
					t.Errorf("%s: %v", id, err)
					continue
				}
				// The database has read the clock between the enqueue and recorded_at.
				history, err := ledger.History(t.Context(), pool, r.Key)
				if err != nil {
					t.Fatal(err)
				}
				const slack = 4 * time.Microsecond
				read, first, last := e.DueAt().Add(-test.want), history[0].RecordedAt, e.RecordedAt
				if read.Before(first.Add(-slack)) || read.After(last.Add(slack)) {
					t.Errorf("%s: appended between %s and %s, due at %s", id, first, last, e.DueAt())
				}
			}
		})
	}
}

func TestAppendRefusesDueTimes(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "reader")
	tx := beginTx(t, pool, pgx.ReadCommitted)
	ledgertest.Enqueue(t, tx, ledger.Key{Kind: "append", BizID: "1"}, "")
	for name, change := range map[string]func(*ledger.AppendRequest){
		"in negative":  func(r *ledger.AppendRequest) { r.In = -1 },
		"in and at":    func(r *ledger.AppendRequest) { r.In, r.At = 1, time.Now() },
		"at year 9999": func(r *ledger.AppendRequest) { r.At = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) },
		"at year 9999 in UTC": func(r *ledger.AppendRequest) {
			r.At = time.Date(9998, 12, 31, 23, 0, 0, 0, time.FixedZone("", -3600))
		},
		"at the end of time": func(r *ledger.AppendRequest) {
			r.At = time.Date(9998, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
		},
		"at of scheduled":   func(r *ledger.AppendRequest) { r.Type = ledger.EventScheduled },
		"at of snoozed":     func(r *ledger.AppendRequest) { r.Type = ledger.EventSnoozed },
		"at with succeeded": func(r *ledger.AppendRequest) { r.Type, r.In = ledger.EventSucceeded, 1 },
		"at with released":  func(r *ledger.AppendRequest) { r.Type, r.In = ledger.EventReleased, 1 },
		"data no object":    func(r *ledger.AppendRequest) { r.In, r.Data = 1, json.RawMessage(`[]`) },
		"data null":         func(r *ledger.AppendRequest) { r.In, r.Data = 1, json.RawMessage(`null`) },
		"data with the member": func(r *ledger.AppendRequest) {
			r.In, r.Data = 1, json.RawMessage(`{"retry_at":null}`)
		},
		"data with the member escaped": func(r *ledger.AppendRequest) {
			r.In, r.Data = 1, json.RawMessage(`{"r\u0065try_at":1}`)
		},
	} {
		r := appending("1", 1, ledger.EventFailed)
		change(&r)
		_, err := ledger.Append(t.Context(), tx, r)
		if invalid := wantErrorAs[*ledger.InvalidError](t, err); invalid.Field != strings.Fields(name)[0] {
			t.Errorf("%s: %v", name, invalid)
		}
		wantErrorAs[*ledger.InvalidError](t, ledger.AppendEach(t.Context(), tx, []ledger.AppendRequest{r})[0].Err)
	}
	if all := timers(t, tx); len(all) != 0 {
		t.Errorf("timers %v", all)
	}
	wantUsable(t, tx)

	f := newCommitFixture(t)
	r := appending("1", 1, ledger.EventFailed)
	r.In = time.Second
	_, err := f.tx.AppendAndCommit(t.Context(), r)
	wantErrorAs[*ledger.InvalidError](t, err)
}

// An append that inserts no event sets no timer.
func TestFailedAppendSetsNoTimer(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "reader")
	for name, appendOne := range appenders {
		k := ledger.Key{Kind: "append", BizID: ledger.BizID(name)}
		ledgertest.Append(t, pool, k, ledger.EventStarted)
		r := appending(k.BizID, 1, ledger.EventFailed)
		r.In = time.Second
		_, err := appendOne(t, pool, r)
		wantErrorAs[*ledger.ConflictError](t, err)
		r.Key.BizID = "unknown"
		_, err = appendOne(t, pool, r)
		wantError(t, err, ledger.ErrUnknownTask)
	}
	if all := timers(t, pool); len(all) != 0 {
		t.Errorf("timers %v", all)
	}
}

// DueAt returns the zero time for data of another shape.
func TestDueAtOfForeignData(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		``, `null`, `[]`, `{`, `{"retry_at":5}`, `{"retry_at":"soon"}`, `{"retry_at":"infinity"}`,
		`{"run_at":"2101-01-01T00:00:00Z"}`,
	} {
		e := ledger.Event{Version: 2, Type: ledger.EventFailed, Data: json.RawMessage(data)}
		if due := e.DueAt(); !due.IsZero() {
			t.Errorf("%s is due at %s", data, due)
		}
	}
}

// RunIn counts from the insert by the database's clock.
func TestEnqueueLater(t *testing.T) {
	t.Parallel()
	for _, a := range adapters() {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t, ledgertest.App, "reader")
			want := map[ledger.BizID]time.Duration{
				"1": time.Millisecond, "2": time.Hour, "3": 100 * 365 * 24 * time.Hour,
			}
			var entries []ledger.Entry
			for id, in := range want {
				o := &ledger.EnqueueOptions{RunIn: in}
				entries = append(entries, ledger.Entry{Key: ledger.Key{Kind: "later", BizID: id}, Options: o})
			}
			before := readClock(t, pool)
			a.run(t, pool, func(enqueue enqueuer) {
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
			after := readClock(t, pool)
			for _, row := range timers(t, pool) {
				task, err := ledger.Load(t.Context(), pool, row.Key)
				if err != nil {
					t.Fatal(err)
				}
				read := task.DueAt.Add(-want[row.Key.BizID])
				if read.Before(before) || read.After(after) || row.DueAt.Before(task.DueAt) {
					t.Errorf("%+v, due at %s, enqueued between %s and %s", row, task.DueAt, before, after)
				}
				if row.Version != 1 || row.Reason != "due" {
					t.Errorf("%+v", row)
				}
			}
			ledgertest.Check(t, pool)
		})
	}
}

// readClock returns the time by the database's clock.
func readClock(t *testing.T, db ledger.DB) time.Time {
	t.Helper()
	rows, err := db.Query(t.Context(), "select clock_timestamp()")
	if err != nil {
		t.Fatal(err)
	}
	var now time.Time
	if _, err := pgx.ForEachRow(rows, []any{&now}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	return now
}

// The timer of a deadline that has passed is due now, and not before the clock at the insert.
func TestPassedDeadlineIsDueNow(t *testing.T) {
	t.Parallel()
	for _, a := range adapters() {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t, ledgertest.App, "reader")
			passed := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
			before := readClock(t, pool)
			a.run(t, pool, func(enqueue enqueuer) {
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
			if err != nil || task.State != ledger.StateAvailable {
				t.Errorf("%+v, %v", task, err)
			}
			if !task.StartBy.Equal(passed) || !task.FinishBy.Equal(passed) {
				t.Errorf("deadlines %s and %s, want %s", task.StartBy, task.FinishBy, passed)
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
		"meta member":   {Meta: ledger.Meta{StartBy: time.Now()}},
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
