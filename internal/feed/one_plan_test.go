package feed_test

import (
	"strconv"
	"testing"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// PostgreSQL does not plan the statements of a poll at each execution: after five plans with known parameters it
// compares them with the plan for all parameters. A window with its parameters as constants took 163 µs of its CPU, 61
// without.
func TestPollsArePlannedOnce(t *testing.T) {
	pool := ledgertest.Pool(t, ledgertest.App, "relay")
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	opened, err := feed.Open(t.Context(), conn, "test", &feed.Options{AuditEvery: -1, PageSize: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		key := ledger.Key{Kind: "k", BizID: ledger.BizID(strconv.Itoa(i))}
		if _, err := ledger.Enqueue(t.Context(), conn, key, nil, nil); err != nil {
			t.Fatal(err)
		}
		if i%10 < 8 {
			continue // the next window has several pages
		}
		for {
			page, ok, err := opened.Poll(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			if err := page.Advance(t.Context(), nil, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	const plans = "select coalesce(sum(generic_plans), 0), coalesce(sum(custom_plans), 0) " +
		"from pg_prepared_statements where statement = $1"
	for name, sql := range map[string]string{
		"window": feed.WindowSQL, "page": feed.PageSQL, "cursor_append": feed.CursorAppendSQL,
	} {
		var generic, custom int
		if err := conn.QueryRow(t.Context(), plans, sql).Scan(&generic, &custom); err != nil {
			t.Fatal(err)
		}
		if generic == 0 || custom > 5 {
			t.Errorf("%s was executed with one plan %d times, and planned %d times", name, generic, custom)
		}
	}
}
