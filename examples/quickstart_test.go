package examples_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/embedded"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// quickstart starts the program with these variables, and returns it with its log.
func quickstart(t *testing.T, bin string, variables ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	return logged(t, append(os.Environ(), variables...), bin)
}

// logged starts a program in an environment, and returns it with its log.
func logged(t *testing.T, env []string, bin string, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(bin, args...)
	cmd.Env = env
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // if the test has failed
	return cmd, bufio.NewReader(log)
}

// awaitLine reads a log until a line contains text.
func awaitLine(t *testing.T, log *bufio.Reader, text string) {
	t.Helper()
	for {
		line, err := log.ReadString('\n')
		if strings.Contains(line, text) {
			return
		}
		if err != nil {
			t.Fatalf("the log ends without %q: %v", text, err)
		}
		t.Logf("log: %s", line)
	}
}

// The program needs nothing: it starts PostgreSQL and gives the coupon, once also after a second start. It logs no
// warning.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(build(t), "quickstart")
	data, err := os.MkdirTemp("", "taskledger-quickstart-") // the user of PostgreSQL cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	if err := os.Chmod(data, 0o755); err != nil {
		t.Fatal(err)
	}
	nothing := []string{"DATABASE_URL=", "NATS_URL=", "TASKLEDGER_ROLE=", "TASKLEDGER_DATA=" + data}
	first, log := quickstart(t, bin, nothing...)
	awaitLine(t, log, "order-1 gets a coupon of 500 cents")
	servers, err := embedded.Attach(data)
	if err != nil {
		t.Fatal(err)
	}
	db, err := pgxpool.New(t.Context(), servers.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	second, logOfSecond := quickstart(t, bin, nothing...) // uses the PostgreSQL of the first
	awaitRow(t, db, `select from taskledger.workers having count(*) = 2`)
	interrupt(t, second, logOfSecond)
	interrupt(t, first, log)
	if _, err := embedded.Attach(data); !errors.Is(err, embedded.ErrNotRunning) {
		t.Errorf("after the end: %v", err)
	}
}

// Two processes share a database. If one is killed, the other one takes over the services.
func TestQuickstartIsKilled(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(build(t), "quickstart")
	db := ledgertest.Pool(t, ledgertest.Owner)
	variables := []string{"DATABASE_URL=" + db.Config().ConnString(), "NATS_URL=", "TASKLEDGER_ROLE=",
		"TASKLEDGER_DATA=" + t.TempDir()}
	first, log := quickstart(t, bin, variables...)
	awaitLine(t, log, "order-1 gets")
	second, log := quickstart(t, bin, append(variables, "TASKLEDGER_DATA="+t.TempDir())...)
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	ledgertest.Enqueue(t, db, ledgertest.Key(t, "coupon.send/order-2"), "700")
	awaitLine(t, log, "order-2 gets a coupon of 700 cents")
	awaitCoupons(t, db)
	interrupt(t, second, log)
}

// awaitCoupons waits until each order has one coupon.
func awaitCoupons(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	awaitRow(t, db, `select from coupons having count(*) = 2 and count(distinct order_id) = 2`)
}

// interrupt interrupts the program, which must end without an error or a warning.
func interrupt(t *testing.T, cmd *exec.Cmd, log io.Reader) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	killed := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer killed.Stop()
	rest, err := io.ReadAll(log)
	if waited := cmd.Wait(); waited != nil || err != nil || strings.Contains(string(rest), "WARN") {
		t.Errorf("%v, %v\n%s", waited, err, rest)
	}
}

// The README shows the program from its first declaration on.
func TestReadmeShowsTheExample(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile("quickstart/main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, want, _ := strings.Cut(string(program), ")\n\nvar ")
	_, shown, _ := strings.Cut(string(readme), "```go\n")
	shown, _, _ = strings.Cut(shown, "```\n")
	if shown != "var "+want {
		t.Errorf("README.md shows:\n%s\n\nthe example is:\nvar %s", shown, want)
	}
}
