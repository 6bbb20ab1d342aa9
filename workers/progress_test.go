package workers_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/stdsql"
	"github.com/taskledger/taskledger/workers"
)

// ranSoFar is the beginning of the data of an attempt's first event, with a time that no test knows.
var ranSoFar = regexp.MustCompile(`^{"duration_ms":[0-9.]+,`)

// progressed returns the data of the progressed events of a task, without that time.
func (b *bundle) progressed(k ledger.Key) (all []string) {
	b.T.Helper()
	for _, e := range b.History(k) {
		if e.Type == ledger.EventProgressed {
			all = append(all, ranSoFar.ReplaceAllString(string(e.Data), "{"))
		}
	}
	return all
}

// Progress is published at once and recorded at intervals, outside a transaction that commits undisturbed.
func TestProgress(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	live := try(b.NC.SubscribeSync("taskledger.progress.test.order"))(t)
	if err := b.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	var took atomic.Int64
	k := ledger.Key{Kind: order.Name(), BizID: "o-1"}
	b.Work(workers.Config{}, b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		begun := time.Now()
		if err := insertEffect(ctx, tx, job, args); err != nil {
			return err
		}
		for n := 0; len(b.progressed(k)) < 2; n++ {
			if err := job.Progress(n); err != nil {
				return err
			}
		}
		took.Store(int64(time.Since(begun)))
		return nil
	}, nil))
	b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
	if n, most := len(b.progressed(k)), int(time.Duration(took.Load())/time.Second)+1; n > most {
		t.Errorf("%d events in %s", n, time.Duration(took.Load()))
	}
	var report struct {
		BizID    string `json:"biz_id"`
		Attempt  int
		Progress int
	}
	if err := json.Unmarshal(try(live.NextMsg(patience))(t).Data, &report); err != nil {
		t.Fatal(err)
	}
	if report.BizID != "o-1" || report.Attempt != 1 || report.Progress != 0 {
		t.Errorf("progress %+v", report)
	}
	if task := b.Task(k); task.Attempt != 1 {
		t.Errorf("attempt %d", task.Attempt)
	}
}

// A quick attempt records no progress.
func TestProgressOfQuickAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	var kept atomic.Pointer[workers.Job]
	b.Work(workers.Config{}, b.exactly(func(_ context.Context, _ pgx.Tx, job *workers.Job, _ orderArgs) error {
		kept.Store(job)
		return errors.Join(job.Progress("half"), job.Progress("done"))
	}, nil))
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateSucceeded)
	if err := kept.Load().Progress("late"); err != nil {
		t.Error(err)
	}
	want := []ledger.EventType{ledger.EventEnqueued, ledger.EventSucceeded}
	if diff := difference.Of(want, b.EventTypes(k)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An attempt continues from the checkpoint of the previous one, and receives its error.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	type handlerFunc = func(context.Context, *workers.Job, orderArgs) error
	for name, register := range map[string]func(*bundle, handlerFunc, *workers.KindConfig) func(*workers.Pool) error{
		"at least once": (*bundle).atLeast, "at most once": (*bundle).atMost,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Dispatch()
			var resumed, before atomic.Value
			b.Work(workers.Config{}, register(b, func(ctx context.Context, job *workers.Job, _ orderArgs) error {
				var at int
				found, err := job.Resume(ctx, &at)
				if err != nil || !found {
					return errors.Join(err, job.Checkpoint(3), job.Checkpoint(7), workers.SafeToRetry(errBoom))
				}
				resumed.Store(at)
				errors, err := job.PreviousErrors(ctx)
				before.Store(errors)
				return err
			}, nil))
			k := b.Enqueue("o-1")
			b.AwaitState(k, ledger.StateSucceeded)
			if resumed.Load() != 7 {
				t.Errorf("resumed at %v", resumed.Load())
			}
			if diff := difference.Of([]string{`{"checkpoint":3}`, `{"checkpoint":7}`}, b.progressed(k)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if errors := before.Load().([]workers.PreviousError); len(errors) != 1 || errors[0].Message != "boom" ||
				errors[0].Attempt != 1 {
				t.Errorf("errors before: %+v", errors)
			}
			if task := b.Task(k); task.Attempt != 2 {
				t.Errorf("attempt %d", task.Attempt)
			}
		})
	}
}

// Invalid reports are refused, and the attempt is not affected.
func TestProgressRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.Work(workers.Config{}, b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		for what, err := range map[string]error{
			"no JSON":                    job.Progress(make(chan int)),
			"too long":                   job.Progress(strings.Repeat("x", workers.MaxProgressBytes)),
			"checkpoint, exactly once":   job.Checkpoint(1),
			"checkpoint that is no JSON": job.Checkpoint(make(chan int)),
		} {
			var invalid *ledger.InvalidError
			if !errors.As(err, &invalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
		return insertEffect(ctx, tx, job, args)
	}, nil))
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateSucceeded)
	b.WantOneEffect(k)
}

// Checkpoint returns ErrFenced to a handler whose task was cancelled.
func TestCheckpointOfCancelled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	failure := make(chan error, 1)
	o := operator.New(b.DB)
	b.Work(workers.Config{LeaseTTL: endless}, b.atLeast(func(ctx context.Context, job *workers.Job, _ orderArgs) error {
		if err := job.Checkpoint(1); err != nil {
			return err
		}
		if _, err := o.Cancel(ctx, job.Key, operator.Audit{Actor: "ada"}); err != nil {
			return err
		}
		err := job.Checkpoint(2)
		failure <- errors.Join(err, job.Checkpoint(3), context.Cause(ctx))
		return err
	}, nil))
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateCancelled)
	if err := <-failure; !errors.Is(err, workers.ErrCancelled) {
		t.Errorf("got %v, want ErrCancelled", err)
	}
	if diff := difference.Of([]string{`{"checkpoint":1}`}, b.progressed(k)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Tasks that a handler enqueues name its task as their cause, and continue its trace.
func TestFollowUpsNameTheirCause(t *testing.T) {
	t.Parallel()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	mail := ledger.MustKind[orderArgs]("test.mail")
	b := setup(t)
	b.Dispatch()
	for name, register := range map[string]func(*bundle) func(*workers.Pool) error{
		"pgx": func(b *bundle) func(*workers.Pool) error {
			return b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
				_, err := mail.Enqueue(ctx, tx, ledger.BizID(job.Kind), args, nil)
				return err
			}, nil)
		},
		"database/sql": func(b *bundle) func(*workers.Pool) error {
			return b.exactlySQL(func(ctx context.Context, tx *sql.Tx, job *workers.Job, _ orderArgs) error {
				mail := ledger.Entry{Key: ledger.Key{Kind: mail.Name(), BizID: ledger.BizID(job.Kind)}}
				_, err := ledger.EnqueueMany(ctx, stdsql.Wrap(tx), []ledger.Entry{mail})
				return err
			}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			b.Work(workers.Config{}, register(b))
			k := ledger.Key{Kind: b.Kind().Name(), BizID: "o/1"}
			try(
				b.Kind().Enqueue(b.Context(), b.DB, k.BizID, orderArgs{},
					&ledger.EnqueueOptions{Meta: ledger.Meta{Traceparent: trace, Tracestate: "vendor=1"}}),
			)(t)
			b.AwaitState(k, ledger.StateSucceeded)
			want := ledger.Meta{Causation: b.History(k)[0].ID(), Traceparent: trace, Tracestate: "vendor=1"}
			of := ledger.Key{Kind: mail.Name(), BizID: ledger.BizID(k.Kind)}
			got := try(ledger.ParseMeta(b.History(of)[0].Meta))(t)
			if diff := difference.Of(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
