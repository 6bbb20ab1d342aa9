package feed_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The examples in other languages store each success once in their table, even if their transactions fail in between.
func TestFeedInOtherLanguages(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("psql"); err != nil {
		t.Skip("psql is not installed")
	}
	for file, program := range map[string]string{"feed.py": "python3", "feed.cjs": "node"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			interpreter, err := exec.LookPath(program)
			if err != nil {
				t.Skipf("%s is not installed", program)
			}
			f := newLanguageFixture(t)
			run := func() (string, error) {
				cmd := exec.CommandContext(t.Context(), interpreter, "../../examples/feed/"+file)
				cmd.Env = append(os.Environ(), "DATABASE_URL="+f.address, "ONCE=1")
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			// The second page fails with the whole transaction of its effect.
			f.succeed(0, 150)
			ledgertest.ExecAsOwner(t, f.pool, `alter table mail add constraint broken check (order_no <> 'order-120')`)
			if out, err := run(); err == nil || !strings.Contains(out, "broken") {
				t.Fatalf("the program did not fail: %v: %s", err, out)
			}
			ledgertest.ExecAsOwner(t, f.pool, `alter table mail drop constraint broken`)
			f.succeed(150, 200)
			if out, err := run(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var sent, different int
			if err := f.pool.QueryRow(t.Context(), `select count(*), count(distinct order_no) from mail`).
				Scan(&sent, &different); err != nil {
				t.Fatal(err)
			}
			if sent != 200 || different != 200 {
				t.Errorf("%d mails to %d orders, want 200", sent, different)
			}
		})
	}
}

type languageFixture struct {
	*subscriberFixture

	address string // for the program
}

func newLanguageFixture(t *testing.T) *languageFixture {
	t.Helper()
	pool := ledgertest.Pool(t)
	ledgertest.ExecAsOwner(t, pool, `
		create table mail (order_no text not null); grant select, insert on mail to public`)
	address := ledgertest.URLAs(t, pool.Config().ConnString(), "subscriber")
	return &languageFixture{subscriberFixture: &subscriberFixture{T: t, pool: pool}, address: address}
}

// succeed enqueues tasks and finishes them.
func (f *languageFixture) succeed(from, to int) {
	f.Helper()
	var entries []ledger.Entry
	for i := from; i < to; i++ {
		key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("order-%d", i))}
		entries = append(entries, ledger.Entry{Key: key})
	}
	if _, err := ledger.EnqueueMany(f.Context(), f.pool, entries); err != nil {
		f.Fatal(err)
	}
	for _, e := range entries {
		request := ledger.AppendRequest{Key: e.Key, Expected: 1, Type: ledger.EventSucceeded, Actor: "test"}
		if _, err := ledger.Append(f.Context(), f.pool, request); err != nil {
			f.Fatal(err)
		}
	}
}
