package workers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// sqlWorker polls by SQL alone, as a worker in another language may, until ctx is done.
func sqlWorker(ctx context.Context, t *testing.T, db *pgxpool.Pool, id string) (claimed int) {
	t.Helper()
	if _, err := db.Exec(ctx, "select taskledger.heartbeat($1, '{test.order}')", id); err != nil {
		t.Error(err)
		return 0
	}
	for ctx.Err() == nil {
		rows, _ := db.Query(ctx, "select biz_id, version, attempt from taskledger.claim_next('test.order', $1, 5)", id)
		type task struct {
			ID               string
			Version, Attempt int
		}
		tasks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[task])
		if err != nil && ctx.Err() == nil {
			t.Error(err)
			return claimed
		}
		for _, k := range tasks {
			claimed++
			err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "insert into effect values ($1, $2)", k.ID, k.Attempt); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, "select taskledger.finish('test.order', $1, $2)", k.ID, k.Version)
				return err
			})
			if err != nil && !pgerr.Is(err, "TL001") && ctx.Err() == nil {
				t.Error(err)
			}
		}
		if len(tasks) == 0 {
			time.Sleep(10 * time.Millisecond) // as a poller does
		}
	}
	return claimed
}

// Workers in Go and workers that poll by SQL share a kind, and each task has one effect.
func TestSQLWorkersBesideAPool(t *testing.T) {
	t.Parallel()
	b := &bundle{servicetest.NewServed(t, outbox.StreamConfig{})}
	b.Work(workers.Config{}, b.exactly(
		func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			if _, err := tx.Exec(ctx, "select pg_sleep(0.02)"); err != nil {
				return err
			}
			return insertEffect(ctx, tx, job, args)
		}, &workers.KindConfig{Slots: 2}))
	const n = 400
	b.EnqueueMany(n)
	b.Await("the first successes in Go", func() bool { // workers in SQL are quicker, and would take all
		return one[int](b, "select count(*)::integer from taskledger.event where type = 'succeeded'") >= 10
	})
	ctx, cancel := context.WithCancel(b.Context())
	db := b.As("worker")
	counts := make([]int, 2)
	var all sync.WaitGroup
	for i := range counts {
		all.Go(func() { counts[i] = sqlWorker(ctx, t, db, fmt.Sprintf("sql-%d", i)) })
	}
	b.AwaitSucceeded(n)
	cancel()
	all.Wait()
	b.WantOneEffectEach(n)
	own := one[int](b, "select count(*)::integer from taskledger.event where type = 'succeeded' and actor like 'sql-%'")
	if own == 0 || own == n {
		t.Errorf("workers in SQL have done %d of %d tasks; they claimed %v", own, n, counts)
	}
}

// outcome returns the contents of an event of a failure, without times and names.
func outcome(e ledger.Event) string {
	var data map[string]any
	_ = json.Unmarshal(e.Data, &data)
	for _, name := range []string{"worker", "started_at", "duration_ms", "retry_at"} {
		delete(data, name)
	}
	if described, ok := data["error"].(map[string]any); ok {
		delete(described, "fingerprint") // of SQL, readers compute it
	}
	if all, ok := data["errors"].([]any); ok {
		for _, failure := range all {
			delete(failure.(map[string]any), "at")
		}
	}
	text, _ := json.Marshal(data)
	in := time.Duration(0)
	if due := e.DueAt(); !due.IsZero() {
		in = due.Sub(e.RecordedAt).Round(time.Second)
	}
	return fmt.Sprintf("%s %d %s %s", e.Type, e.Attempt, in, text)
}

// failure is an error with a type that both sides name.
type failure string

func (f failure) Error() string { return string(f) }

// A failure has the same outcome in SQL as in Go, for many retry policies: the same events, delays and data.
func TestFailuresInSQLAreThoseOfGo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	const otherwise = `{"ladder":[3600],"jitter":0}` // of the kind
	message := func(id ledger.BizID) string {
		if strings.HasSuffix(string(id), "long") {
			return strings.Repeat("x", 4095) + "é and more"
		}
		return strings.Repeat("é", 300) + " \"failed\"\n"
	}
	b.Work(workers.Config{DB: b.As("worker")}, b.exactly(
		func(_ context.Context, _ pgx.Tx, job *workers.Job, _ orderArgs) error {
			return failure(message(job.BizID))
		}, &workers.KindConfig{Retry: try(ledger.ParseRetryPolicy([]byte(otherwise)))(t)}))
	db := b.As("worker")
	try(db.Exec(b.Context(), "select taskledger.heartbeat('sql', '{test.sql}')"))(t)
	const failSQL = `select taskledger.fail($1, $2, c.version, $3, 'workers_test.failure', retry => $4)
	                   from taskledger.claim($1, $2, 'sql') c`
	// outcomesOf returns the events of a task that is released three times at most.
	outcomesOf := func(k ledger.Key) (outcomes []string) {
		t.Helper()
		for releases := 0; ; {
			if s := b.Task(k).State; s == ledger.StateAvailable && k.Kind == "test.sql" {
				try(db.Exec(b.Context(), failSQL, string(k.Kind), string(k.BizID), message(k.BizID), otherwise))(t)
			}
			b.Await("its failure", func() bool {
				s := b.Task(k).State
				return s == ledger.StateDead || s == ledger.StateRetrying || k.Kind == "test.sql"
			})
			if s := b.Task(k).State; s == ledger.StateDead || s == ledger.StateRetrying && releases == 3 {
				break
			} else if s == ledger.StateRetrying {
				try(b.Operator().Release(b.Context(), k, audit))(t)
				releases++
			}
		}
		for _, e := range b.History(k) {
			if e.Type != ledger.EventStarted {
				outcomes = append(outcomes, outcome(e))
			}
		}
		return outcomes
	}
	for i, retry := range []string{
		"", `{"jitter":0}`, `{"attempts":1}`, `{"ladder":[0,0],"jitter":0}`, `{"ladder":[60,0,120],"jitter":0}`,
		`{"unit":7,"attempts":3,"jitter":0}`, `{"max":5,"attempts":4,"jitter":0}`,
		`{"ladder":[],"attempts":2,"jitter":0}`,
	} {
		for _, suffix := range []string{"", "-long"} {
			options := ledger.EnqueueOptions{}
			if retry != "" {
				policy := try(ledger.ParseRetryPolicy([]byte(retry)))(t)
				options.Retry = &policy
			}
			var outcomes [2][]string
			for side, kind := range []ledger.Kind{order.Name(), "test.sql"} {
				k := ledger.Key{Kind: kind, BizID: ledger.BizID(fmt.Sprintf("o-%d%s", i, suffix))}
				try(ledger.Enqueue(b.Context(), b.DB, k, []byte(`{"amount":1}`), &options))(t)
				outcomes[side] = outcomesOf(k)
			}
			if diff := difference.Of(outcomes[0], outcomes[1]); diff != "" || len(outcomes[0]) < 3 {
				t.Errorf("policy %q (-Go +SQL):\n%s", retry, diff)
			}
		}
	}
}
