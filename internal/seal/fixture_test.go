package seal_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/longtest"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// sealedDatabase: the test binary seals this database if it is set.
const sealedDatabase = "SEAL_TEST_DATABASE"

func TestMain(m *testing.M) {
	url := os.Getenv(sealedDatabase)
	if url == "" {
		os.Exit(longtest.Run(m))
	}
	pool, err := pgxpool.New(context.Background(), url)
	if err == nil {
		_, err = seal.Run(context.Background(), pool, nil)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// fixture is a ledger with a pool for each role that has to do with the seal.
type fixture struct {
	t                             *testing.T
	app, archiver, reader, forger *pgxpool.Pool // forger is the owner
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	app := ledgertest.Pool(t)
	return &fixture{
		t: t, app: app, archiver: ledgertest.As(t, app, "archiver"), reader: ledgertest.As(t, app, "reader"),
		forger: ledgertest.As(t, app, ledgertest.Owner),
	}
}

// finish enqueues tasks 1 to n of kind coupon.send, and records that they have succeeded.
func (f *fixture) finish(from, to int) {
	f.t.Helper()
	for i := from; i <= to; i++ {
		k := ledgertest.Key(f.t, fmt.Sprintf("coupon.send/%d", i))
		ledgertest.Enqueue(f.t, f.app, k, fmt.Sprintf(`{"percent":%d}`, i))
		ledgertest.Append(f.t, f.app, k, ledger.EventStarted, ledger.EventSucceeded)
	}
}

// fill inserts many events at once.
func (f *fixture) fill(n int) {
	f.t.Helper()
	f.forge(fmt.Sprintf(`insert into taskledger.event (version, attempt, type, shard, kind, biz_id, data)
		select 1, 0, 'enqueued', 0, 'mail.send', 'many/' || (select count(*) from taskledger.event) || '/' || i,
		       '{"to":"somebody@example.org"}'
		  from generate_series(1, %d) i`, n))
}

func (f *fixture) seal() seal.Result {
	f.t.Helper()
	result, err := seal.Run(f.t.Context(), f.archiver, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return result
}

// forge executes what only the owner may do, without the triggers.
func (f *fixture) forge(sql string, args ...any) {
	f.t.Helper()
	conn, err := f.forger.Acquire(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(f.t.Context(), "set session_replication_role = replica"); err != nil {
		f.t.Fatal(err)
	}
	if _, err := conn.Exec(f.t.Context(), sql, args...); err != nil {
		f.t.Fatalf("%s: %v", sql, err)
	}
	if _, err := conn.Exec(f.t.Context(), "reset session_replication_role"); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) verify(kept ...seal.Checkpoint) seal.Report {
	f.t.Helper()
	report, err := seal.Verify(f.t.Context(), f.reader, &seal.VerifyOptions{Checkpoints: kept})
	if err != nil {
		f.t.Fatal(err)
	}
	return report
}

// expect verifies, and compares the faults and problems with those expected: the beginnings of their lines.
func (f *fixture) expect(kept []seal.Checkpoint, want ...string) {
	f.t.Helper()
	report := f.verify(kept...)
	var got []string
	for _, fault := range report.Faults {
		got = append(got, fault.String())
	}
	for _, c := range report.Comparisons {
		if c.Problem != "" {
			got = append(got, "checkpoint: "+c.Problem)
		}
	}
	isSame := len(got) == len(want)
	for i := 0; isSame && i < len(got); i++ {
		isSame = strings.HasPrefix(got[i], want[i])
	}
	if !isSame {
		f.t.Errorf("verify reports\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if report.IsValid() != (len(want) == 0) {
		f.t.Errorf("valid: %v", report.IsValid())
	}
}

func (f *fixture) count(sql string, args ...any) (n int64) {
	f.t.Helper()
	if err := f.forger.QueryRow(f.t.Context(), sql, args...).Scan(&n); err != nil {
		f.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// prove returns the proofs of a task for a checkpoint, which must be right.
func (f *fixture) prove(key string, c seal.Checkpoint) []seal.TaskEvent {
	f.t.Helper()
	events, err := seal.ProveTask(f.t.Context(), f.reader, seal.Archive{}, ledgertest.Key(f.t, key), 0, 100, c)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, e := range events {
		if e.Proof == nil {
			continue
		}
		if err := e.Proof.Check(c); err != nil {
			f.t.Error(err)
		}
	}
	return events
}
