package seal_test

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// benchmarkEvents is the number of events that a benchmark seals and verifies:
// go test ./internal/seal -run '^$' -bench . -benchtime 100x.
const benchmarkEvents = 200_000

// BenchmarkSeal reports the rates of sealing, of verifying and of proofs, and the disk space of a sealed event.
func BenchmarkSeal(b *testing.B) {
	app := ledgertest.Pool(b)
	owner := ledgertest.As(b, app, ledgertest.Owner)
	archiver := ledgertest.As(b, app, "archiver")
	_, err := owner.Exec(b.Context(), `
		insert into taskledger.event (version, attempt, type, shard, kind, biz_id, data, actor)
		select 1, 0, 'enqueued', i % 64, 'coupon.send', gen_random_uuid()::text, '{"percent":10}', 'shop'
		  from generate_series(1, $1::integer) i`, benchmarkEvents)
	if err != nil {
		b.Fatal(err)
	}
	rate := func(f func()) float64 {
		began := time.Now()
		f()
		return benchmarkEvents / time.Since(began).Seconds()
	}
	var c seal.Checkpoint
	sealed := rate(func() {
		result, err := seal.Run(b.Context(), archiver, nil)
		if err != nil || result.Sealed != benchmarkEvents {
			b.Fatalf("%+v, %v", result, err)
		}
		c = result.Checkpoint
	})
	verified := rate(func() {
		report, err := seal.Verify(b.Context(), archiver, &seal.VerifyOptions{Checkpoints: []seal.Checkpoint{c}})
		if err != nil || !report.IsValid() {
			b.Fatalf("%+v, %v", report, err)
		}
	})
	var bizID string
	var bytes, events int64
	err = owner.QueryRow(b.Context(), `
		select pg_total_relation_size('taskledger.seal'), pg_total_relation_size('taskledger.event'),
		       (select biz_id from taskledger.event where position = $1)`,
		benchmarkEvents/2).Scan(&bytes, &events, &bizID)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("proof", func(b *testing.B) {
		k := ledgertest.Key(b, "coupon.send/"+bizID)
		for b.Loop() {
			proved, err := seal.ProveTask(b.Context(), archiver, seal.Archive{}, k, 0, 1, c)
			if err != nil || proved[0].Proof.Check(c) != nil {
				b.Fatalf("%+v, %v", proved, err)
			}
		}
		b.ReportMetric(sealed, "sealed/s")
		b.ReportMetric(verified, "verified/s")
		b.ReportMetric(float64(bytes)/benchmarkEvents, "sealB/event")
		b.ReportMetric(float64(events)/benchmarkEvents, "ledgerB/event")
	})
}
