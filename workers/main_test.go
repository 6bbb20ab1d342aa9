package workers_test

import (
	"context"
	"database/sql"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/workers"
)

// In half of the tests the workers talk to the dispatcher over NATS, in the others by memory.
func TestMain(m *testing.M) {
	servicetest.Prepare = func(t testing.TB, p *workers.Pool) {
		if crc32.ChecksumIEEE([]byte(t.Name()))%2 == 0 {
			t.Log("the workers talk over NATS")
			p.TalkByNATS()
		}
	}
	servicetest.Main(m, program)
}

// program returns the program of a child process.
func program(name string) servicetest.Program {
	if arguments, ok := strings.CutPrefix(name, "drain "); ok {
		return func(ctx context.Context, db *pgxpool.Pool) error { return runDrain(ctx, db, arguments) }
	}
	config := workers.Config{LeaseTTL: leaseTTL}
	switch name {
	case "heeds":
		config.StopTimeout = 100 * time.Millisecond
	case "slow-to-stop":
		return func(ctx context.Context, db *pgxpool.Pool) error {
			context.AfterFunc(ctx, func() { fmt.Println(stops) })
			return servicetest.WorkerProgram(config, programs["slow"])(ctx, db)
		}
	}
	return servicetest.WorkerProgram(config, programs[name])
}

// stops is the line of the program "slow-to-stop", which is slow, when it begins to stop.
const stops = "stops"

// programs are the programs of children, by name: each registers the handlers of a worker process.
var programs = map[string]func(*workers.Pool, *pgxpool.Pool) error{
	// exactly writes in the transaction.
	"exactly": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return p.Register(workers.Handle(order, func(
			ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs,
		) error {
			return passing(insertEffect(ctx, tx, job, args))
		}, nil))
	},
	// exactly-at-commit does so by a statement that is sent with the commit.
	"exactly-at-commit": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return p.Register(workers.Handle(order, func(
			ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs,
		) error {
			return passing(insertEffectAtCommit(ctx, tx, job, args))
		}, nil))
	},
	// exactly-sql does so by database/sql.
	"exactly-sql": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return p.Register(workers.Handle(order,
			func(ctx context.Context, tx *sql.Tx, job *workers.Job, args orderArgs) error {
				return passing(insertEffectSQL(ctx, tx, job, args))
			},
			nil,
		))
	},
	// at-least writes outside of the transaction.
	"at-least": func(p *workers.Pool, db *pgxpool.Pool) error {
		return p.Register(workers.Handle(order, func(
			ctx context.Context, job *workers.Job, args orderArgs,
		) error {
			return passing(outside(db)(ctx, job, args))
		}, nil))
	},
	// at-most writes outside of the transaction, at most once.
	"at-most": func(p *workers.Pool, db *pgxpool.Pool) error {
		return p.Register(workers.Handle(order, func(
			ctx context.Context, job *workers.Job, args orderArgs,
		) error {
			return passing(outside(db)(ctx, job, args))
		}, &workers.KindConfig{Guarantee: workers.AtMostOnce}))
	},
	// together shares transactions.
	"together": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return p.Register(workers.Handle(order, insertEffect, &workers.KindConfig{Slots: 1, Together: 5}))
	},
	// killer is killed by the task "killer" while other tasks run.
	"killer": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return p.Register(workers.Handle(order, func(
			ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs,
		) error {
			if job.BizID == "killer" {
				self, _ := os.FindProcess(os.Getpid())
				_ = self.Kill()
				select {}
			}
			if _, err := tx.Exec(ctx, "select pg_sleep(0.05)"); err != nil {
				return err
			}
			return insertEffect(ctx, tx, job, args)
		}, &workers.KindConfig{MaxLost: 3}))
	},
	// slow reports that it has begun, and continues after a line from its parent.
	"slow": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return p.Register(workers.Handle(order, func(
			ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs,
		) error {
			if err := insertEffect(ctx, tx, job, args); err != nil {
				return err
			}
			return servicetest.Hold()
		}, &workers.KindConfig{MaxLost: 3}))
	},
	// slow-at-least is slow, with effects elsewhere.
	"slow-at-least": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return p.Register(workers.Handle(order, func(context.Context, *workers.Job, orderArgs) error {
			return servicetest.Hold()
		}, nil))
	},
	// heeds is slow, and returns when its context is cancelled.
	"heeds": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return p.Register(workers.Handle(order, func(
			ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs,
		) error {
			if err := insertEffect(ctx, tx, job, args); err != nil {
				return err
			}
			servicetest.ReportBegun()
			<-ctx.Done()
			return ctx.Err()
		}, nil))
	},
	// The handlers of crowded programs count how many of them run at a time, over all processes.
	"crowded-exactly": func(p *workers.Pool, db *pgxpool.Pool) error {
		return crowded(order, db, workers.ExactlyOnce)(p)
	},
	"crowded-at-least": func(p *workers.Pool, db *pgxpool.Pool) error {
		return crowded(order, db, workers.AtLeastOnce)(p)
	},
	"crowded-at-most": func(p *workers.Pool, db *pgxpool.Pool) error {
		return crowded(order, db, workers.AtMostOnce)(p)
	},
	// panics panics in a goroutine that its handler started, after which nothing can be recorded.
	"panics": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return p.Register(workers.Handle(order, func(
			ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs,
		) error {
			if err := insertEffect(ctx, tx, job, args); err != nil {
				return err
			}
			go panic("no caller can recover this")
			select {}
		}, nil))
	},
	// slow-once is slow, and must not be repeated.
	"slow-once": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return p.Register(workers.Handle(order, func(context.Context, *workers.Job, orderArgs) error {
			return servicetest.Hold()
		}, &workers.KindConfig{Guarantee: workers.AtMostOnce}))
	},
}

// pointEffect is a crash point that handlers pass after their effect.
const pointEffect = "test.effect"

func passing(err error) error {
	fault.Point(pointEffect)
	return err
}
