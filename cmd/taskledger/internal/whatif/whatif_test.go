package whatif_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/cmd/taskledger/internal/whatif"
	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// insertHistory inserts the history of a task as the owner: words such as "failed@60", with the seconds after its first
// event. Each attempt takes 10 s.
func insertHistory(t *testing.T, pool *pgxpool.Pool, id, history string) {
	t.Helper()
	const insert = `
		insert into taskledger.event (recorded_at, version, attempt, shard, type, kind, biz_id, data, run)
		values (timestamptz '2026-11-01 00:00:00Z' + $1::bigint * interval '1 second', $2, $3, 0,
		        $4::text::taskledger.event_type, 'k', $5, $6::text::json, $7)`
	attempt, run := 0, 1
	for i, word := range strings.Fields("enqueued@0 " + history) {
		name, seconds, _ := strings.Cut(word, "@")
		at, err := strconv.Atoi(seconds)
		if err != nil {
			t.Fatal(err)
		}
		var data *string
		var later *int // the number of the run that the event begins
		if name == "enqueued" && i > 0 {
			run, attempt = run+1, 0
			later = &run
		}
		if name == "failed" || name == "succeeded" {
			attempt++
			text := `{"duration_ms": 10000}`
			data = &text
		}
		if _, err := pool.Exec(t.Context(), insert, at, i+1, attempt, name, id, data, later); err != nil {
			t.Fatal(err)
		}
	}
}

// historyCounter counts the histories that are read.
type historyCounter struct {
	*pgxpool.Pool

	read int
}

func (c *historyCounter) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if strings.HasPrefix(sql, "-- Reads all events of a task") ||
		strings.HasPrefix(sql, "-- Reads the events of a task") {
		c.read++
	}
	return c.Pool.Query(ctx, sql, args...)
}

// The history of a task is read once, however often it has failed, and a task counts at its first failure in the range.
func TestHistoryIsReadOnce(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	insertHistory(t, pool, "1", "failed@10 released@20 failed@30 released@40 failed@50 released@60 failed@70 buried@70")
	insertHistory(t, pool, "2", "failed@10 released@20 succeeded@40")
	p, err := whatif.ParsePolicy([]byte(`{"finish_by": 100}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		from  ledger.Position
		tasks int64
	}{{from: 0, tasks: 2}, {from: 5, tasks: 2}, {from: 9, tasks: 2}, {from: 11, tasks: 1}, {from: 12, tasks: 0}} {
		db := &historyCounter{Pool: pool}
		var r ledger.Range
		if test.from > 0 {
			if r.From, err = ledger.MomentBefore(t.Context(), pool, test.from); err != nil {
				t.Fatal(err)
			}
		}
		report, err := whatif.Run(t.Context(), db, r, p, nil)
		if err != nil || report.Tasks != test.tasks || db.read != int(test.tasks) {
			t.Errorf("from position %d: %d tasks, %d histories read, want %d; %v", test.from, report.Tasks, db.read,
				test.tasks, err)
		}
	}
}

// Each task gets the fate that the assumptions of the package give it.
func TestPolicies(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		history, policy string
		want            whatif.Report
	}{
		"more attempts save a task that a person released": {
			// 10 s each: the failures end at 10 and 30. The recorded success begins at 3600.
			history: "failed@10 failed@30 buried@30 released@3600 succeeded@3610",
			policy:  `{"retry": {"ladder": [60, 600, 3600], "jitter": 0}}`,
			// attempts: 0-10, 70-80 (between: fails), 680-690 (fails), 4290-4300
			want: whatif.Report{Saved: 1, AttemptsRecorded: 3, AttemptsSimulated: 4,
				Later: whatif.Shift{Tasks: 1, Mean: 690 * time.Second, Max: 690 * time.Second}},
		},
		"the run of the failure": {
			// As the case before: the other runs, also one that fails, change nothing.
			history: "succeeded@10 enqueued@5000 failed@5010 failed@5030 buried@5030 released@8600 succeeded@8610 " +
				"enqueued@9000 failed@9010 buried@9010 enqueued@9020 succeeded@9030",
			policy: `{"retry": {"ladder": [60, 600, 3600], "jitter": 0}}`,
			want: whatif.Report{Saved: 1, AttemptsRecorded: 3, AttemptsSimulated: 4,
				Later: whatif.Shift{Tasks: 1, Mean: 690 * time.Second, Max: 690 * time.Second}},
		},
		"a run is no refused event": {
			history: "failed@10 buried@10 enqueued@20 succeeded@30",
			policy:  `{"transitions": [{"type": "released", "from": []}]}`,
		},
		"quicker retries succeed earlier": {
			history: "failed@10 released@110 failed@120 released@1000 succeeded@1010",
			policy:  `{"retry": {"ladder": [90, 890], "attempts": 9, "jitter": 0}}`,
			// attempts: 0-10, 100-110, 1000-1010
			want: whatif.Report{AttemptsRecorded: 3, AttemptsSimulated: 3},
		},
		"a later first retry spends fewer attempts": {
			history: "failed@10 released@20 failed@30 released@40 failed@50 released@5000 succeeded@5010",
			policy:  `{"retry": {"ladder": [5000], "jitter": 0}}`,
			want: whatif.Report{AttemptsRecorded: 4, AttemptsSimulated: 2,
				Later: whatif.Shift{Tasks: 1, Mean: 10 * time.Second, Max: 10 * time.Second}},
		},
		"fewer attempts lose a task": {
			history: "failed@10 released@110 failed@120 released@1000 succeeded@1010",
			policy:  `{"retry": {"ladder": [1], "jitter": 0}}`,
			want:    whatif.Report{Lost: 1, AttemptsRecorded: 3, AttemptsSimulated: 2},
		},
		"more attempts of a task that never succeeded": {
			history: "failed@10 failed@30 buried@30",
			policy:  `{"retry": {"ladder": [60], "attempts": 5}}`,
			want:    whatif.Report{Perhaps: 1, AttemptsRecorded: 2, AttemptsSimulated: 1},
		},
		"a deadline ends what succeeded late": {
			history: "failed@10 released@110 failed@120 released@1000 succeeded@1010",
			policy:  `{"finish_by": 600}`,
			want:    whatif.Report{Lost: 1, AttemptsRecorded: 3, AttemptsSimulated: 2},
		},
		"a deadline that is met changes nothing": {
			history: "failed@10 released@110 failed@120 released@1000 succeeded@1010",
			policy:  `{"finish_by": 1010}`,
			want:    whatif.Report{AttemptsRecorded: 3, AttemptsSimulated: 3},
		},
		"a deadline ends an attempt": {
			history: "failed@10 released@1000 succeeded@1010",
			policy:  `{"finish_by": 1009}`,
			want:    whatif.Report{Lost: 1, AttemptsRecorded: 2, AttemptsSimulated: 2},
		},
		"a first attempt that began too late": {
			history: "failed@110 released@1000 succeeded@1010",
			policy:  `{"start_by": 60}`,
			want:    whatif.Report{Lost: 1, AttemptsRecorded: 2},
		},
		"a task that expired unstarted would have had longer": {
			history: "expired@60",
			policy:  `{"start_by": 3600}`,
			want:    whatif.Report{Perhaps: 1},
		},
		"another table": {
			history: "failed@10 released@20 failed@30 buried@30 released@50 succeeded@60",
			policy:  `{"transitions": [{"type": "released", "from": ["scheduled", "retrying"]}]}`,
			want: whatif.Report{Differed: 1, Refused: []whatif.Refusal{
				{Type: "released", State: "dead", Events: 1}, {Type: "succeeded", State: "dead", Events: 1}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t, ledgertest.Owner)
			insertHistory(t, pool, "1", test.history)
			insertHistory(t, pool, "fine", "succeeded@10")
			p, err := whatif.ParsePolicy([]byte(test.policy))
			if err != nil {
				t.Fatal(err)
			}
			got, err := whatif.Run(t.Context(), ledgertest.As(t, pool, "reader"), ledger.Range{}, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			test.want.Tasks = 1
			numbers := got
			numbers.Examples = nil
			for _, s := range []*whatif.Shift{&numbers.Earlier, &numbers.Later} {
				*s = whatif.Shift{Tasks: s.Tasks, Mean: s.Mean, Max: s.Max}
			}
			if diff := difference.OfContents(test.want, numbers); diff != "" {
				t.Errorf("(-want +got):\n%s\n%+v", diff, got.Examples)
			}
		})
	}
}

// A task counts once, in the range of its first failure there, and other tasks do not count.
func TestRangeOfFailures(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	insertHistory(t, pool, "1", "failed@10 released@20 failed@30 released@40")                // positions 1 to 5
	insertHistory(t, pool, "2", "failed@10 failed@30 buried@30 released@3600 succeeded@3610") // 6 to 11
	p := whatif.Policy{FinishBy: time.Hour}
	for _, test := range []struct {
		from, to ledger.Position
		want     int64
	}{
		{to: 11, want: 2}, {to: 6, want: 1}, {from: 2, to: 4, want: 1}, {from: 3, to: 3, want: 0},
		{from: 4, to: 11, want: 2}, {from: 8, to: 9, want: 1}, {from: 10, to: 11, want: 0},
	} {
		r := ledger.Range{}
		var err error
		if test.from > 0 {
			if r.From, err = ledger.MomentBefore(t.Context(), pool, test.from); err != nil {
				t.Fatal(err)
			}
		}
		if r.To, err = ledger.MomentOf(t.Context(), pool, test.to); err != nil {
			t.Fatal(err)
		}
		report, err := whatif.Run(t.Context(), pool, r, p, nil)
		if err != nil || report.Tasks != test.want {
			t.Errorf("from %d to %d: %d tasks, %v, want %d", test.from, test.to, report.Tasks, err, test.want)
		}
	}
}

// An invalid policy is refused with the member that is at fault.
func TestInvalidPolicies(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]string{
		`{}`: "must have retry", `[]`: "must be an object", `{"retries": {}}`: "retries: is not a member",
		`{"retry": {"ladder": "x"}}`: "invalid retry.ladder", `{"finish_by": -1}`: "invalid finish_by",
		`{"start_by": 1e300}`: "invalid start_by", `{"transitions": [{"type": "done"}]}`: "must be an event type",
		`{"transitions": [{"type": "failed", "from": ["gone"]}]}`: "must be a state",
	} {
		if _, err := whatif.ParsePolicy([]byte(policy)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", policy, err, want)
		}
	}
}
