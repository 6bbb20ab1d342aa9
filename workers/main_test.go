package workers_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/workers"
)

// childVariable names the program that the test binary is to run instead of its tests.
const childVariable = "TASKLEDGER_WORKERS_TEST_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(childVariable); name != "" {
		if err := runChild(name); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// programs are what children do, by name: each registers the handlers of a worker process.
var programs = map[string]func(*workers.Pool, *pgxpool.Pool) error{
	// exactly does its work in the transaction.
	"exactly": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return workers.Register(p, order, func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			return passing(insertEffect(ctx, tx, job, args))
		}, nil)
	},
	// exactly-sql does, too, by database/sql.
	"exactly-sql": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return workers.RegisterSQL(p, order, func(ctx context.Context, tx *sql.Tx, job *workers.Job, args orderArgs) error {
			return passing(insertEffectSQL(ctx, tx, job, args))
		}, nil)
	},
	// at-least does its work outside of the transaction.
	"at-least": func(p *workers.Pool, db *pgxpool.Pool) error {
		return workers.RegisterAtLeastOnce(p, order, func(ctx context.Context, job *workers.Job, args orderArgs) error {
			return passing(outside(db)(ctx, job, args))
		}, nil)
	},
	// at-most does its work outside of the transaction, and not again.
	"at-most": func(p *workers.Pool, db *pgxpool.Pool) error {
		return workers.RegisterAtMostOnce(p, order, func(ctx context.Context, job *workers.Job, args orderArgs) error {
			return passing(outside(db)(ctx, job, args))
		}, nil)
	},
	// together shares transactions.
	"together": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return workers.Register(p, order, insertEffect, &workers.KindConfig{Slots: 1, Together: 5})
	},
	// divided does its work in the transaction, in its part of the shards.
	"divided": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return workers.Register(p, order, insertEffect, nil)
	},
	// killer dies of the task "killer", and while it does others are at work.
	"killer": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return workers.Register(p, order, func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			if job.BizID == "killer" {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			if _, err := tx.Exec(ctx, "select pg_sleep(0.05)"); err != nil {
				return err
			}
			return insertEffect(ctx, tx, job, args)
		}, &workers.KindConfig{MaxLost: 3})
	},
	// slow says "begun", and goes on when its parent has said something.
	"slow": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return workers.Register(p, order, func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			if err := insertEffect(ctx, tx, job, args); err != nil {
				return err
			}
			fmt.Fprintln(os.Stdout, "begun")
			_, err := bufio.NewReader(os.Stdin).ReadString('\n')
			return err
		}, &workers.KindConfig{MaxLost: 3})
	},
	// slow-at-least is slow, with effects elsewhere.
	"slow-at-least": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return workers.RegisterAtLeastOnce(p, order, func(context.Context, *workers.Job, orderArgs) error {
			fmt.Fprintln(os.Stdout, "begun")
			_, err := bufio.NewReader(os.Stdin).ReadString('\n')
			return err
		}, nil)
	},
	// heeds is slow, and returns when it is told to.
	"heeds": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return workers.Register(p, order, func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			if err := insertEffect(ctx, tx, job, args); err != nil {
				return err
			}
			fmt.Fprintln(os.Stdout, "begun")
			<-ctx.Done()
			return ctx.Err()
		}, nil)
	},
	// panics does so in a goroutine of its handler's own, after which nothing can be recorded.
	"panics": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return workers.Register(p, order, func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
			if err := insertEffect(ctx, tx, job, args); err != nil {
				return err
			}
			go panic("nobody can recover this")
			select {}
		}, nil)
	},
	// slow-once is slow, and not to be done again.
	"slow-once": func(p *workers.Pool, _ *pgxpool.Pool) error {
		return workers.RegisterAtMostOnce(p, order, func(context.Context, *workers.Job, orderArgs) error {
			fmt.Fprintln(os.Stdout, "begun")
			_, err := bufio.NewReader(os.Stdin).ReadString('\n')
			return err
		}, nil)
	},
}

// pointEffect is passed by handlers that have had their effect.
const pointEffect = "test.effect"

func passing(err error) error {
	fault.Point(pointEffect)
	return err
}

// runChild runs a worker process until it gets SIGTERM, and then prints its status.
func runChild(name string) error {
	ctx, stop := workers.SignalContext(context.Background())
	defer stop()
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	if name == "scheduler" {
		s, err := workers.NewScheduler(workers.SchedulerConfig{DB: db})
		if err != nil {
			return err
		}
		return s.Run(ctx)
	}
	nc, err := stream.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		return err
	}
	if arguments, ok := strings.CutPrefix(name, "drain "); ok {
		return runDrain(ctx, db, nc, arguments)
	}
	config := workers.Config{DB: db, NATS: nc, Name: "child", AckWait: ackWait, StopTimeout: time.Hour}
	switch name {
	case "divided":
		config.ShardGroups = 8
	case "slow, default AckWait":
		name, config.AckWait = "slow", 0
	case "heeds":
		config.StopTimeout = 100 * time.Millisecond
	}
	p, err := workers.New(config)
	if err != nil {
		return err
	}
	if err := programs[name](p, db); err != nil {
		return err
	}
	if err := p.Run(ctx); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(p.Status())
}

// child is a worker process.
type child struct {
	*exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	ended chan struct{} // closed when it has ended and ProcessState is set
}

// spawn starts a worker process; points are armed crash points.
func (b *bundle) spawn(name string, points ...string) *child {
	b.t.Helper()
	cmd := exec.Command(try(os.Executable())(b.t))
	cmd.Env = append(os.Environ(), childVariable+"="+name,
		"DATABASE_URL="+b.db.Config().ConnString(), fault.Variable+"="+strings.Join(points, ","))
	if b.server != nil {
		cmd.Env = append(cmd.Env, "NATS_URL="+b.server.URL())
	}
	cmd.Stderr = &childLog{b.t}
	out, stdout, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	cmd.Stdout = stdout
	c := &child{Cmd: cmd, in: try(cmd.StdinPipe())(b.t), out: bufio.NewReader(out), ended: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	_ = stdout.Close() // it is the child's now
	go func() {
		defer close(c.ended)
		_ = cmd.Wait()
	}()
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-c.ended
		_ = out.Close()
	})
	return c
}

// killed waits for the child to end and checks that it was killed.
func (c *child) killed(t testing.TB) {
	t.Helper()
	<-c.ended
	if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("child ended by itself: %v", c.ProcessState)
	}
}

// finish has the child stop in order and returns what it has done.
func (c *child) finish(t testing.TB) workers.KindStatus {
	t.Helper()
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var status workers.Status
	if err := json.NewDecoder(c.out).Decode(&status); err != nil {
		t.Fatal(err)
	}
	<-c.ended
	return status.Kinds[0]
}

type childLog struct{ t testing.TB }

func (l *childLog) Write(text []byte) (int, error) {
	l.t.Logf("child: %s", text)
	return len(text), nil
}
