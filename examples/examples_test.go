package examples_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/services"
)

// patience bounds what normally takes milliseconds.
const patience = time.Minute

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(built.dir)
	os.Exit(code)
}

// built are the programs, in one directory for all tests.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// build builds all programs, once, and returns their directory.
func build(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "taskledger-examples-"); built.err != nil {
			return
		}
		if out, err := exec.Command("go", "build", "-o", built.dir, "./...").CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

// The programs do what their comments promise, next to each other on one ledger.
func TestPrograms(t *testing.T) {
	t.Parallel()
	bin := build(t)
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	db := ledgertest.Pool(t, ledgertest.App, "subscriber", "operator")
	serve(t, ledgertest.As(t, db, "relay"), server.URL())
	env := append(os.Environ(), "DATABASE_URL="+db.Config().ConnString(), "NATS_URL="+server.URL())
	for name, test := range map[string]func(programs, *pgxpool.Pool){
		"orders": testOrders, "campaign": testCampaign, "partner": testPartner, "points": testPoints,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(programs{t: t, bin: bin, env: env}, db)
		})
	}
}

// Three processes create the tables at the same time. Two workers and a subscriber, one of each is replaced, and each
// order has one coupon and one mail.
func testOrders(p programs, db *pgxpool.Pool) {
	place := p.start("orders", "place", "A-1", "A-2")
	first, second := p.start("orders", "work"), p.start("orders", "work")
	p.wait(place)
	subscriber := p.start("subscriber")
	await(p.t, db, "A-1 A-2", "mails")
	p.stop(first)
	p.stop(subscriber)
	subscriber = p.start("subscriber")
	p.wait(p.start("orders", "place", "A-1", "A-3")) // A-1 once more
	await(p.t, db, "A-1 A-2 A-3", "mails")
	await(p.t, db, "A-1 A-2 A-3", "coupons")
	p.stop(second)
	p.stop(subscriber)
}

// serve runs the services until the test ends.
func serve(t *testing.T, db *pgxpool.Pool, natsURL string, options ...nats.Option) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- services.Run(ctx, services.Config{DB: db, NATS: services.ToNATS(natsURL, options...)})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// await waits until a table has exactly one row for each of the orders.
func await(t *testing.T, db *pgxpool.Pool, orders, table string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var have string
		// The program may not have created the table yet.
		err := db.QueryRow(t.Context(), "select coalesce(string_agg(order_id, ' ' order by order_id), '') from "+table).
			Scan(&have)
		if err == nil && have == orders {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %q after %s, want %q: %v", table, have, patience, orders, err)
		}
	}
}

// awaitRow waits until a query returns a row.
func awaitRow(t *testing.T, db *pgxpool.Pool, query string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		tag, err := db.Exec(t.Context(), query)
		if err == nil && tag.RowsAffected() > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: no row after %s: %v", query, patience, err)
		}
	}
}

// programs starts the programs in bin.
type programs struct {
	t   *testing.T
	bin string
	env []string
}

func (p programs) start(name string, args ...string) *exec.Cmd {
	p.t.Helper()
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Env, cmd.Stderr = p.env, &strings.Builder{}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = cmd.Process.Kill() }) // if the test has failed
	return cmd
}

func (p programs) wait(cmd *exec.Cmd) {
	p.t.Helper()
	if err := cmd.Wait(); err != nil {
		p.t.Fatalf("%v: %v\n%s", cmd.Args, err, cmd.Stderr)
	}
}

// awaitEnd is like wait, and ends the test if the program does not end.
func (p programs) awaitEnd(cmd *exec.Cmd) {
	p.t.Helper()
	isLate := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer isLate.Stop()
	p.wait(cmd)
}

// stop interrupts a program, which must end without an error.
func (p programs) stop(cmd *exec.Cmd) {
	p.t.Helper()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		p.t.Fatal(err)
	}
	p.wait(cmd)
}

// The files are those of the documents, whose examples the tests of the command check.
func TestFilesAreThoseOfTheDocuments(t *testing.T) {
	t.Parallel()
	for file, doc := range map[string]string{
		"schedules.yaml": "periodic.md", "alarms.yaml": "alarms.md", "webhooks.yaml": "webhooks.md",
	} {
		have, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join("..", "docs", doc))
		if err != nil {
			t.Fatal(err)
		}
		_, want, _ := strings.Cut(string(text), "```yaml\n")
		want, _, _ = strings.Cut(want, "```")
		if _, body, _ := strings.Cut(string(have), "\n"); want == "" || body != want {
			t.Errorf("%s is not the first block of docs/%s", file, doc)
		}
	}
}
