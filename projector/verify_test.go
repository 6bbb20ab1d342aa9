package projector_test

import (
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

func TestVerifyFindsEveryKindOfDamage(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	enqueueAndSucceed(t, pool, 0, 5)
	project(t, pool)
	owner := ledgertest.As(t, pool, ledgertest.Owner)
	const of = " where biz_id like '%1'"
	for _, test := range []struct{ damage, subject string }{
		{"update taskledger.task set state = 'running'" + of, "order-00000001 state"},
		{"update taskledger.task set version = 9" + of, "order-00000001 version"},
		{"update taskledger.task set shard = (shard + 1) % 64" + of, "order-00000001 shard"},
		{"update taskledger.task set attempt = 9" + of, "order-00000001 attempt"},
		{"update taskledger.task set failures = 9" + of, "order-00000001 failures"},
		{"update taskledger.task set aside = true" + of, "order-00000001 aside"},
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

// Batches end between tasks, even if one task is larger than a batch.
func TestVerifyInSmallBatches(t *testing.T) {
	defer projector.SetVerifyBatch(3)()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	scribble(t, pool, 5, 3, 60)
	project(t, pool)
	check(t, pool)
}
