package servicetest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/longtest"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// childVariable names the program that the test binary runs instead of its tests.
const childVariable = "TASKLEDGER_TEST_CHILD"

// kindVariable names the kind of its tasks.
const kindVariable = "TASKLEDGER_TEST_KIND"

// Program is the main function of a child process. It returns when ctx is done by SIGTERM.
type Program func(ctx context.Context, db *pgxpool.Pool) error

// Main is the TestMain of a package: it runs its tests or, in a child process, the program that [Bundle.Spawn]
// named. find returns a program by its name.
func Main(m *testing.M, find func(name string) Program) {
	name := os.Getenv(childVariable)
	if name == "" {
		os.Exit(longtest.Run(m))
	}
	if err := runProgram(find(name)); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}

func runProgram(p Program) error {
	ctx, stop := workers.SignalContext(context.Background())
	defer stop()
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	return p(ctx, db)
}

// WorkerProgram returns a program that runs a worker, and prints its status at its end.
func WorkerProgram(c workers.Config, register func(*workers.Pool, *pgxpool.Pool) error) Program {
	return func(ctx context.Context, db *pgxpool.Pool) error {
		nc, err := stream.Connect(os.Getenv("NATS_URL"))
		if err != nil {
			return err
		}
		c.DB, c.NATS, c.Name = db, nc, "child"
		if c.StopTimeout == 0 {
			c.StopTimeout = time.Hour
		}
		p, err := workers.New(c)
		if err != nil {
			return err
		}
		if err := register(p, db); err != nil {
			return err
		}
		if err := p.Run(ctx); err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(p.Status())
	}
}

// ReportBegun reports to [Child.AwaitBegun] that a handler in a child process has begun.
func ReportBegun() { _, _ = fmt.Fprintln(os.Stdout, "begun") }

// Hold is a handler in a child process: it reports that it has begun, and waits for a line from the test.
func Hold() error {
	ReportBegun()
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	return err
}

// Child is a child process.
type Child struct {
	*exec.Cmd
	In    io.WriteCloser
	Out   *bufio.Reader
	Ended chan struct{} // closed when it has ended and ProcessState is set
}

// Spawn starts a child process as a worker that also enqueues; points are its armed crash points.
func (b *Bundle) Spawn(program string, points ...string) *Child {
	b.T.Helper()
	return b.SpawnAs(ledgertest.App, program, points...)
}

// SpawnAs is [Bundle.Spawn] as a role.
func (b *Bundle) SpawnAs(role, program string, points ...string) *Child {
	b.T.Helper()
	var broker string
	if b.Server != nil {
		broker = b.Server.URL()
	}
	return b.SpawnAt(ledgertest.URLAs(b.T, b.DB.Config().ConnString(), role), broker, program, points...)
}

// SpawnAt is [Bundle.Spawn] with the addresses of the database and the broker.
func (b *Bundle) SpawnAt(database, broker, program string, points ...string) *Child {
	b.T.Helper()
	cmd := exec.Command(Try(os.Executable())(b.T))
	cmd.Env = append(os.Environ(), childVariable+"="+program, "DATABASE_URL="+database, "NATS_URL="+broker,
		kindVariable+"="+string(b.kind.Name()), fault.Variable+"="+strings.Join(points, ","))
	cmd.Stderr = logWriter{b.T, "child: "}
	out, stdout, err := os.Pipe()
	if err != nil {
		b.T.Fatal(err)
	}
	cmd.Stdout = stdout
	c := &Child{Cmd: cmd, In: Try(cmd.StdinPipe())(b.T), Out: bufio.NewReader(out), Ended: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		b.T.Fatal(err)
	}
	_ = stdout.Close() // the child uses its own copy
	go func() {
		defer close(c.Ended)
		_ = cmd.Wait()
	}()
	b.T.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-c.Ended
		_ = out.Close()
	})
	return c
}

// AwaitBegun waits until a handler in the child has begun.
func (c *Child) AwaitBegun(t testing.TB) {
	t.Helper()
	if line, err := c.Out.ReadString('\n'); err != nil || line != "begun\n" {
		t.Fatalf("the child printed %q, %v", line, err)
	}
}

// AwaitKilled waits until the child has ended, and checks that it was killed.
func (c *Child) AwaitKilled(t testing.TB) {
	t.Helper()
	<-c.Ended
	if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the child was not killed: %v", c.ProcessState)
	}
}

// Finish stops a worker process by SIGTERM, and returns the status of its first kind.
func (c *Child) Finish(t testing.TB) workers.KindStatus {
	t.Helper()
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var status workers.Status
	if err := json.NewDecoder(c.Out).Decode(&status); err != nil {
		t.Fatal(err)
	}
	<-c.Ended
	return status.Kinds[0]
}
