package projector_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

func TestVerifyFindsEveryKindOfDamage(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	enqueueAndSucceed(t, pool, 0, 5)
	_, err := ledger.Enqueue(t.Context(), pool, ledger.Key{Kind: "a", BizID: "tagged"}, nil,
		&ledger.EnqueueOptions{Meta: ledger.Meta{Tags: []string{"vip"}}})
	if err != nil {
		t.Fatal(err)
	}
	project(t, pool)
	owner := ledgertest.As(t, pool, ledgertest.Owner)
	const of = " where biz_id like '%1'"
	for _, test := range []struct{ damage, subject string }{
		{"update taskledger.task set state = 'running'" + of, "order-00000001 state"},
		{"update taskledger.task set version = 9" + of, "order-00000001 version"},
		{"update taskledger.task set shard = (shard + 1) % 64" + of, "order-00000001 shard"},
		{"update taskledger.task set attempt = 9" + of, "order-00000001 attempt"},
		{"update taskledger.task set priority = 1" + of, "order-00000001 priority"},
		{"update taskledger.task set failures = 9" + of, "order-00000001 failures"},
		{"update taskledger.task set aside = 'dead'" + of, "order-00000001 aside"},
		{"update taskledger.task set error = 'none'" + of, "order-00000001 error"},
		{"update taskledger.task set updated_at = updated_at + interval '1 microsecond'" + of,
			"order-00000001 updated_at"},
		{"update taskledger.task set enqueued_at = enqueued_at - interval '1 microsecond'" + of,
			"order-00000001 enqueued_at"},
		{"update taskledger.task set cause = 'a/b'" + of, "order-00000001 cause"},
		{"delete from taskledger.task where biz_id like '%0'", "order-00000000"},
		{"delete from taskledger.task where biz_id like '%4'", "order-00000004"},
		{"update taskledger.task set biz_id = 'a'" + of, "coupon.send/a"},
		{"update taskledger.task set biz_id = 'z'" + of, "coupon.send/z"},
		{"update taskledger.task_count set value = value + 1", "count of coupon.send succeeded"},
		{"insert into taskledger.task_count values ('a', 'dead', 1, 1)", "count of a dead"},
		{"delete from taskledger.task_count", "count of coupon.send succeeded"},
		{"update taskledger.kind_stats set started = 7", "statistics of coupon.send"},
		{"update taskledger.kind_stats set waiting = '{1}'", "statistics of coupon.send"},
		{"delete from taskledger.kind_stats", "statistics of coupon.send"},
		{"update taskledger.kind_stats set kind = 'b'", "statistics of b"},
		{"update taskledger.kind_hour set started = 7", "statistics of coupon.send, hour"},
		{"delete from taskledger.kind_hour", "statistics of coupon.send, hour"},
		{"delete from taskledger.task_tag", "a/tagged tag vip"},
		{"update taskledger.task_tag set position = position + 1", "a/tagged tag vip"},
		{"insert into taskledger.task_tag select 'other', position from taskledger.task_tag", "number of tags"},
	} {
		tx, err := owner.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), test.damage); err != nil {
			t.Fatalf("%s: %v", test.damage, err)
		}
		report, err := projector.VerifyIn(t.Context(), tx)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, d := range report.Differences {
			found = found || strings.Contains(d.Subject, test.subject)
		}
		if !found || report.Equal() {
			t.Errorf("%s: got %v, want one about %s", test.damage, report.Differences, test.subject)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	check(t, pool)
}

// Statistics of many kinds and minutes are sorted in a file, with the same result, and progress is reported.
func TestVerifyStatisticsInRuns(t *testing.T) {
	defer projector.SetVerifyBatch(5)()
	defer projector.SetStatsInMemory(2)()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	for i, kind := range []ledger.Kind{"a", "b", "c", "d"} {
		for minute := range 4 {
			at := time.Date(2026, 11, 1, 10, minute, i, 0, time.UTC).Format(time.RFC3339)
			for n := range 2 {
				ledgertest.ExecAsOwner(t, pool, `insert into taskledger.event
					(kind, biz_id, version, attempt, shard, type, recorded_at) values
					($1, $2, 1, 0, 0, 'enqueued', $3::timestamptz)`,
					string(kind), fmt.Sprint(minute, n), at)
			}
		}
	}
	project(t, pool)
	calls, last := 0, int64(0)
	verify := func() projector.Report {
		t.Helper()
		report, err := projector.Verify(t.Context(), pool, func(done, total int64) {
			if done < last || done > total {
				t.Errorf("progress: %d of %d after %d", done, total, last)
			}
			calls, last = calls+1, done
		})
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	if r := verify(); !r.Equal() || calls < 5 || last != 32 {
		t.Errorf("%+v after %d calls, at %d", r, calls, last)
	}
	last = 0
	ledgertest.ExecAsOwner(t, pool, `delete from taskledger.kind_stats where kind = 'b';
		update taskledger.kind_stats set enqueued = 7 where kind = 'c' and minute = '2026-11-01 10:02:00+00';
		insert into taskledger.kind_stats (kind, minute, enqueued, started, succeeded, failed, dead, cancelled)
		select 'e', minute, 1, 0, 0, 0, 0, 0 from taskledger.kind_stats where kind = 'a'`)
	if r := verify(); r.Different != 4+1+4 {
		t.Errorf("%d differences: %v", r.Different, r.Differences)
	}
}

// Batches end between tasks, even if one task is larger than a batch.
func TestVerifyInSmallBatches(t *testing.T) {
	defer projector.SetVerifyBatch(3)()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	scribble(t, pool, 5, 3, 60)
	project(t, pool)
	check(t, pool)
}
