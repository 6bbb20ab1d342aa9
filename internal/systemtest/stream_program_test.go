package systemtest_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// streamPrograms are the commands that run the examples of docs/events.md. A program of Node runs where its packages
// are installed.
var streamPrograms = map[string]func(ctx context.Context, t *testing.T) *exec.Cmd{
	"go": func(ctx context.Context, t *testing.T) *exec.Cmd {
		return exec.CommandContext(ctx, buildExample(ctx, t, "stream"))
	},
	"node": func(ctx context.Context, t *testing.T) *exec.Cmd {
		dir := t.TempDir()
		if reason, err := installNode(ctx, dir); err != nil {
			t.Fatal(err)
		} else if reason != "" {
			t.Skip(reason)
		}
		file := filepath.Join(dir, "program.cjs")
		if err := os.WriteFile(file, readExample(t, "stream/stream.cjs"), 0o600); err != nil {
			t.Fatal(err)
		}
		return exec.CommandContext(ctx, "node", file)
	},
	"python": func(ctx context.Context, t *testing.T) *exec.Cmd {
		if _, err := exec.LookPath("python3"); err != nil {
			t.Skip("python3 is not installed")
		}
		return exec.CommandContext(ctx, "python3", "../../examples/stream/stream.py")
	},
}

// buildExample builds a program in examples, and returns its path.
func buildExample(ctx context.Context, t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./examples/"+name)
	build.Dir = "../.." // the product's module
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// readExample returns a file in examples.
func readExample(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../examples", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The programs in examples/stream, with the rights of the user subscriber of a server of serve, receive the outcomes of
// one kind, acknowledge them, and after SIGKILL continue after the last one.
func TestProgramsOfTheStream(t *testing.T) {
	for language, command := range streamPrograms {
		t.Run(language, func(t *testing.T) {
			build := command(t.Context(), t)
			d := newLedger(t)
			accounts, passwords := natsconfig.Own(nil)
			server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir(), Accounts: accounts})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Close() })
			urls := passwords.URLs(server.Host())
			connect := func(user string) *nats.Conn {
				nc, err := outbox.Connect(urls[user])
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(nc.Close)
				return nc
			}
			d.startOn("relay", connect(natsconfig.Relay), newRelay)
			finish := d.finisher()
			js, err := jetstream.New(connect(natsconfig.Admin))
			if err != nil {
				t.Fatal(err)
			}
			var consumer jetstream.Consumer
			d.await("the stream", func() bool {
				consumer, err = js.CreateConsumer(t.Context(), "LEDGER", jetstream.ConsumerConfig{Durable: "subscriber",
					FilterSubject: "ledger.*.succeeded.coupon.send", AckPolicy: jetstream.AckExplicitPolicy})
				return err == nil
			})
			finish("A 1", `{"mail": 7}`)
			lines, kill := runProgram(t, build, urls[natsconfig.Subscriber])
			expectLine(t, lines, "coupon.send/A 1 3 7")
			finish("Bestellung-ä", `{"mail": 8}`)
			expectLine(t, lines, "coupon.send/Bestellung-ä 3 8")
			d.await("the acknowledgements, and a request for the next message", func() bool {
				info, err := consumer.Info(t.Context())
				return err == nil && info.AckFloor.Consumer == 2 && info.NumWaiting > 0
			})
			kill()
			// Until then it would give the dead program the message, and again after AckWait.
			d.await("the server to notice", func() bool {
				info, err := consumer.Info(t.Context())
				return err == nil && info.NumWaiting == 0
			})
			finish("A-3", `{"mail": 9}`)
			again := exec.CommandContext(t.Context(), build.Args[0], build.Args[1:]...)
			lines, _ = runProgram(t, again, urls[natsconfig.Subscriber])
			expectLine(t, lines, "coupon.send/A-3 3 9")
		})
	}
}

// finisher returns a function that enqueues a task of the kind coupon.send and finishes it by the functions of
// docs/languages.md.
func (d *depot) finisher() func(id ledger.BizID, result string) {
	db := d.pool("worker")
	return func(id ledger.BizID, result string) {
		d.t.Helper()
		ledgertest.Enqueue(d.t, d.db, ledger.Key{Kind: "coupon.send", BizID: id}, `{"cents": 500}`)
		conn, err := db.Acquire(d.t.Context())
		if err != nil {
			d.t.Fatal(err)
		}
		defer conn.Release()
		for _, call := range []struct {
			sql  string
			args []any
		}{
			{`select taskledger.heartbeat('psql-1', '{coupon.send}', '1 hour')`, nil},
			{`select version from taskledger.claim('coupon.send', $1, 'psql-1')`, []any{string(id)}},
			{`select taskledger.finish('coupon.send', $1, 2, $2::text::json)`, []any{string(id), result}},
		} {
			if _, err := conn.Exec(d.t.Context(), call.sql, call.args...); err != nil {
				d.t.Fatalf("%s: %v", call.sql, err)
			}
		}
	}
}

// runProgram starts a program with the address of a user, and returns the lines that it prints.
func runProgram(t *testing.T, cmd *exec.Cmd, address string) (lines <-chan string, kill func()) {
	t.Helper()
	cmd.Stderr, cmd.Env = t.Output(), append(os.Environ(), "NATS_URL="+address)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	all := make(chan string)
	isRead, isDone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(isRead)
		defer close(all)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			select {
			case all <- scanner.Text():
			case <-isDone:
			}
		}
	}()
	isKilled := false
	kill = func() {
		if isKilled {
			return
		}
		isKilled = true
		close(isDone)
		_ = cmd.Process.Kill()
		<-isRead
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	return all, kill
}

func expectLine(t *testing.T, lines <-chan string, want string) {
	t.Helper()
	select {
	case line, isOpen := <-lines:
		if line != want || !isOpen {
			t.Fatalf("the program printed %q, want %q", line, want)
		}
	case <-time.After(patience):
		t.Fatalf("the program printed nothing, want %q", want)
	}
}
