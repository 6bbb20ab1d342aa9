package services_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/internal/embedded"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/services"
	"github.com/taskledger/taskledger/workers"
)

// embedding is a call of Embed. It logs warnings and errors to log.
type embedding struct {
	log   lines
	stop  context.CancelFunc
	ended chan error
}

// embed calls Embed with a program that runs until stop is called.
func embed(
	t *testing.T, o services.EmbedOptions, program func(context.Context, *taskledger.Client) error,
) *embedding {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	e := &embedding{stop: stop, ended: make(chan error, 1)}
	o.Client.Logger = slog.New(slog.NewTextHandler(&e.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	go func() { e.ended <- services.Embed(ctx, &o, program) }()
	t.Cleanup(stop)
	return e
}

// end stops the embedding, which must return nil.
func (e *embedding) end(t *testing.T) {
	t.Helper()
	e.stop()
	if err := <-e.ended; err != nil {
		t.Errorf("Embed: %v\n%s", err, &e.log)
	}
}

// greeter returns a program that runs a worker, and a channel of the names that it has greeted.
func greeter() (program func(context.Context, *taskledger.Client) error, greeted chan string) {
	greeted = make(chan string, 100)
	return func(ctx context.Context, client *taskledger.Client) error {
		worker, err := client.Worker(greeting(greeted))
		if err != nil {
			return err
		}
		return worker.Run(ctx)
	}, greeted
}

// A program in a database without tables is whole in one process: it enqueues, works and waits. A second start finds
// the schema. Neither logs a warning.
func TestEmbed(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	ledgertest.ExecAsOwner(t, owner, "drop schema taskledger, taskledger_internal cascade")
	o := services.EmbedOptions{
		Client: taskledger.Options{DatabaseURL: owner.Config().ConnString()}, Dir: t.TempDir(),
	}
	for start := range 2 {
		work, greeted := greeter()
		waited := make(chan error, 1)
		e := embed(t, o, func(ctx context.Context, client *taskledger.Client) error {
			id := ledger.BizID(fmt.Sprint("order-", start))
			if _, err := greet.Enqueue(ctx, client.DB, id, "world", nil); err != nil {
				return err
			}
			go func() {
				_, err := client.Wait(ctx, greet.Key(id))
				waited <- err
			}()
			return work(ctx, client)
		})
		select {
		case err := <-waited:
			if name := <-greeted; err != nil || name != "world" {
				t.Fatalf("greeted %q, waited: %v", name, err)
			}
		case err := <-e.ended:
			t.Fatalf("Embed has returned: %v\n%s", err, &e.log)
		}
		e.end(t)
		if text := e.log.String(); text != "" {
			t.Errorf("start %d logs warnings:\n%s", start+1, text)
		}
	}
}

// The same program runs as services alone and twice as workers alone, and a whole process takes the services over.
// Each login has only the roles of its part.
func TestRolesOfAProgram(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, ledgertest.App, "subscriber")
	relay := ledgertest.As(t, db, "relay")
	o := services.EmbedOptions{Client: taskledger.Options{DatabaseURL: db.Config().ConnString()}, Dir: t.TempDir()}
	served := services.EmbedOptions{
		Client: taskledger.Options{DatabaseURL: ledgertest.URLAs(t, o.Client.DatabaseURL, "relay")}, Dir: o.Dir,
		Role: services.RoleServices,
	}
	var called atomic.Bool
	first := embed(t, served, func(context.Context, *taskledger.Client) error {
		called.Store(true)
		return nil
	})
	o.Role = services.RoleProgram
	work, greeted := greeter()
	one, two := embed(t, o, work), embed(t, o, work)
	enqueue := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			id := ledger.BizID(fmt.Sprint("order-", i))
			if _, err := greet.Enqueue(t.Context(), db, id, "world", nil); err != nil {
				t.Fatal(err)
			}
		}
		for range to - from {
			select {
			case <-greeted:
			case err := <-first.ended:
				t.Fatalf("the services have ended: %v\n%s", err, &first.log)
			case <-time.After(patience):
				t.Fatalf("a task was not worked on\n%s\n%s\n%s", &first.log, &one.log, &two.log)
			}
		}
	}
	enqueue(0, 10)
	one.end(t)
	enqueue(10, 20)

	o.Role, o.Services.DB = services.RoleAll, relay
	whole := embed(t, o, work)
	first.end(t)
	first.ended = nil
	enqueue(20, 30)
	two.end(t)
	enqueue(30, 40)
	whole.end(t)
	if called.Load() {
		t.Error("a process with the role services has called the program")
	}
}

// A program without an address starts PostgreSQL itself, and keeps its data. The server ends with it, also if the
// program panics.
func TestEmbedOfItsOwnDatabase(t *testing.T) {
	t.Setenv("DATABASE_URL", "")
	o := services.EmbedOptions{OwnDatabase: true, Dir: t.TempDir()}
	if err := os.Chmod(filepath.Dir(o.Dir), 0o755); err != nil { // root runs PostgreSQL as another user
		t.Fatal(err)
	}
	enqueue := func(ctx context.Context, client *taskledger.Client) error {
		_, err := greet.Enqueue(ctx, client.DB, "order-1", "world", nil)
		return err
	}
	if err := services.Embed(t.Context(), &o, enqueue); err != nil {
		t.Fatal(err)
	}
	for _, panics := range []bool{true, false} {
		func() {
			defer func() {
				if r := recover(); (r != nil) != panics {
					t.Errorf("recovered: %v", r)
				}
			}()
			err := services.Embed(t.Context(), &o, func(ctx context.Context, client *taskledger.Client) error {
				if panics {
					panic("broken")
				}
				_, err := ledger.Load(ctx, client.DB, greet.Key("order-1"))
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}()
		if _, err := embedded.Attach(o.Dir); !errors.Is(err, embedded.ErrNotRunning) {
			t.Errorf("after a program that panics=%t: %v", panics, err)
		}
	}
}

// The services end after the program, so a handler that is running finishes its task.
func TestEmbedFinishesTasks(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	begun := make(chan struct{})
	e := embed(t, services.EmbedOptions{
		Client: taskledger.Options{DatabaseURL: owner.Config().ConnString()}, Dir: t.TempDir(),
	}, func(ctx context.Context, client *taskledger.Client) error {
		if _, err := greet.Enqueue(ctx, client.DB, "order-1", "world", nil); err != nil {
			return err
		}
		slow := func(context.Context, pgx.Tx, *workers.Job, string) error {
			close(begun)
			<-ctx.Done()
			return nil
		}
		worker, err := client.Worker(workers.Handle(greet, slow, nil))
		if err != nil {
			return err
		}
		return worker.Run(ctx)
	})
	<-begun
	e.end(t)
	task, err := ledger.Load(t.Context(), owner, greet.Key("order-1"))
	if err != nil || task.State != ledger.StateSucceeded {
		t.Errorf("the task is %s, %v", task.State, err)
	}
}

// Embed returns the program's error, and refuses what cannot work before it calls the program.
func TestEmbedRefuses(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, ledgertest.App)
	address := taskledger.Options{DatabaseURL: db.Config().ConnString()}
	broken := errors.New("broken")
	fails := func(context.Context, *taskledger.Client) error { return broken }
	waits := func(ctx context.Context, _ *taskledger.Client) error {
		<-ctx.Done()
		return broken
	}
	for _, c := range []struct {
		name string
		o    services.EmbedOptions
		run  func(context.Context, *taskledger.Client) error // default: waits
		want string
	}{
		{name: "error of the program", o: services.EmbedOptions{Client: address, Role: services.RoleProgram},
			run: fails, want: "broken"},
		{name: "unknown role", o: services.EmbedOptions{Client: address, Role: "worker"},
			want: `Role "worker": must be all, services or program`},
		{name: "login without rights", o: services.EmbedOptions{Client: address, Dir: t.TempDir()},
			want: "begin the services"},
		{name: "invalid service", o: services.EmbedOptions{Client: address, Dir: t.TempDir(),
			Services: services.Config{DB: ledgertest.As(t, db, "relay"), Latency: time.Hour}},
			want: "Latency must be between 0s and 1s"},
		{name: "invalid address", o: services.EmbedOptions{Client: taskledger.Options{DatabaseURL: "nonsense"}},
			want: "DatabaseURL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.run == nil {
				c.run = waits
			}
			err := <-embed(t, c.o, c.run).ended
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Embed returns %v, want %q", err, c.want)
			}
		})
	}
}
