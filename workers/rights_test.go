package workers_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
	"github.com/taskledger/taskledger/workers/operator"
	"github.com/taskledger/taskledger/workers/reconciler"
)

// poolAs returns a pool whose connections have exactly the rights that docs/operations.md grants to a role. They may
// create tables of their own.
func poolAs(t *testing.T, owner *pgxpool.Pool, role string) *pgxpool.Pool {
	t.Helper()
	name := role + "_" + strings.ToLower(rand.Text())
	text := try(os.ReadFile("../docs/operations.md"))(t)
	grants := regexp.MustCompile(`(?m)^(grant|revoke) .* (to|from) `+role+`;$`).FindAllString(string(text), -1)
	if len(grants) == 0 {
		t.Fatalf("docs/operations.md grants nothing to %s", role)
	}
	sql := "create role " + name + "; grant create on schema public to " + name + ";" + strings.ReplaceAll(
		strings.Join(grants, " "), role+";", name+";",
	)
	try(owner.Exec(t.Context(), sql))(t)
	config := owner.Config()
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "set role "+name)
		return err
	}
	pool := try(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(func() { // roles belong to the whole server
		pool.Close()
		if _, err := owner.Exec(context.Background(), "drop owned by "+name+"; drop role "+name); err != nil {
			t.Error(err)
		}
	})
	return pool
}

// A process that only enqueues in Go needs only the rights of a producer.
func TestProducerRights(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	db := poolAs(t, pool, "producer")
	for _, l := range []ledger.Limit{
		{Kind: "full", MaxWaiting: 1, Policy: ledger.Reject}, {Kind: "spills", MaxWaiting: 1, Policy: ledger.Discard},
	} {
		if err := ledger.SetLimit(t.Context(), pool, l, ""); err != nil {
			t.Fatal(err)
		}
		try(
			pool.Exec(t.Context(),
				"insert into taskledger.task_count (kind, state, n, value) values ($1, 'available', 1, 5)",
				string(l.Kind)),
		)(t)
	}

	entries := []ledger.Entry{
		{Key: ledgertest.Key(t, "a/1"), Args: []byte(`{}`)},
		{Key: ledgertest.Key(t, "a/2"), Args: []byte(`"` + strings.Repeat("x", 8<<10) + `"`)},
		{
			Key:     ledgertest.Key(t, "a/3"),
			Options: &ledger.EnqueueOptions{RunIn: time.Hour, FinishBy: time.Now().Add(2 * time.Hour)},
		},
		{Key: ledgertest.Key(t, "spills/1")},
	}
	for range 2 { // also if they already exist
		for _, e := range entries {
			if _, err := ledger.Enqueue(t.Context(), db, e.Key, e.Args, e.Options); err != nil {
				t.Errorf("%s: %v", e.Key, err)
			}
		}
		if _, err := ledger.EnqueueMany(
			t.Context(), db, append(entries, ledger.Entry{Key: ledgertest.Key(t, "a/4")}),
		); err != nil {
			t.Errorf("many: %v", err)
		}
	}
	var overload *ledger.OverloadError
	if _, err := ledger.Enqueue(t.Context(), db, ledgertest.Key(t, "full/1"), nil, nil); !errors.As(err, &overload) {
		t.Errorf("over the limit: %v, want an OverloadError", err)
	}
	if n := try(ledger.ReadRejected(t.Context(), pool))(t); n != 1 {
		t.Errorf("%d rejections are counted, want 1", n)
	}
}

// Relay, projector, scheduler, reconciler, operator and workers need no more than the rights of a worker.
func TestWorkerRights(t *testing.T) {
	t.Parallel()
	b := &bundle{servicetest.NewServedOn(t, poolAs(t, ledgertest.Pool(t), "worker"), outbox.StreamConfig{})}
	b.Schedule()
	r := try(
		reconciler.New(reconciler.Config{DB: b.DB, NATS: b.NC, Every: 50 * time.Millisecond, Grace: time.Millisecond}),
	)(t)
	b.Start(r.Run)
	lost := b.Enqueue("lost")
	b.AwaitProjected()
	b.AcknowledgeUnworked(1)
	b.Await("the reconciler to release it", func() bool { return len(b.EventTypes(lost)) == 2 })
	retry := ledger.RetryPolicy{Ladder: []time.Duration{time.Millisecond}}
	b.Work(workers.Config{}, exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if job.Attempt == 1 {
			return errBoom
		}
		return insertEffect(ctx, tx, job, args)
	}, &workers.KindConfig{Retry: retry}))
	k := b.Enqueue("o-1")
	try(order.Enqueue(b.Context(), b.DB, "o-2", orderArgs{}, &ledger.EnqueueOptions{RunIn: time.Hour}))(t)
	later := ledger.Key{Kind: order.Name(), BizID: "o-2"}
	try(b.Operator(nil).Release(b.Context(), later, operator.Audit{}))(t)
	for _, k := range []ledger.Key{k, later, lost} {
		b.AwaitState(k, ledger.StateSucceeded)
		b.WantOneEffect(k)
	}
	if _, err := ledger.ReadRejected(b.Context(), b.DB); err != nil {
		t.Error(err)
	}
}
