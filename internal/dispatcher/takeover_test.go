package dispatcher_test

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// stopsInTurn is the program of a dispatcher that stops itself, as by SIGSTOP, in the transaction of its first turns.
const stopsInTurn = "stops in turn"

// program is a child process that is a dispatcher.
func program(name string) servicetest.Program {
	return func(ctx context.Context, db *pgxpool.Pool) error {
		if name == stopsInTurn {
			fault.Set("dispatcher.turns", sync.OnceFunc(func() {
				continued := make(chan os.Signal, 1)
				signal.Notify(continued, syscall.SIGCONT)
				servicetest.ReportBegun()
				_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
				<-continued // the call may return before the process has stopped
			}))
		}
		nc, err := stream.Connect(os.Getenv("NATS_URL"))
		if err != nil {
			return err
		}
		d, err := dispatcher.New(dispatcher.Config{DB: db, NATS: nc})
		if err != nil {
			return err
		}
		return d.Run(ctx)
	}
}

// The active dispatcher is killed, or stopped and continued as a zombie next to its successor. No task is lost, and no
// handler begins twice: the workers live.
func TestASuccessorTakesOver(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			b := servicetest.New(t)
			var mu sync.Mutex
			begun := map[ledger.BizID]int{}
			first := make(chan time.Time, 1) // the first begin of a task that was enqueued after the signal
			for range 2 {
				b.Work(workers.Config{}, func(p *workers.Pool) error {
					return p.Register(workers.Handle(servicetest.Order,
						func(_ context.Context, job *workers.Job, _ servicetest.OrderArgs) error {
							mu.Lock()
							defer mu.Unlock()
							begun[job.BizID]++
							if job.BizID[0] == 'd' {
								select {
								case first <- time.Now():
								default:
								}
							}
							return nil
						}, nil))
				})
			}
			epoch := func() int {
				return servicetest.One[int](b, `select coalesce((select (l.detail->>'epoch')::integer
					from taskledger.lease l where l.name = 'dispatcher'), 0)`)
			}
			active := b.SpawnAs("relay", "dispatcher")
			b.EnqueueRound("before", 100)
			b.AwaitSucceeded(100) // so that it is in the epoch of the database
			b.SpawnAs("relay", "dispatcher")
			before := epoch()
			b.EnqueueRound("at", 300)
			at := time.Now()
			if err := active.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			b.EnqueueRound("during", 100)
			b.AwaitSucceeded(500)
			t.Logf("the first task began %s after the signal", (<-first).Sub(at))
			if epoch() <= before {
				t.Error("no successor has taken over")
			}
			_ = active.Process.Signal(syscall.SIGCONT)
			b.EnqueueRound("zombie", 300)
			b.AwaitSucceeded(800)
			mu.Lock()
			defer mu.Unlock()
			for id, n := range begun {
				if n != 1 {
					t.Errorf("%s has begun %d times", id, n)
				}
			}
		})
	}
}
