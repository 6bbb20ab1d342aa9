package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The status of a ledger with many kinds, subscribers and conditions is a page: the worst first, with the number of the
// others and the command that shows them.
func TestStatusIsBounded(t *testing.T) {
	t.Parallel()
	const kinds, subscribers = 3000, 130
	environment := map[string]string{envDatabaseURL: ledgertest.URL(t, ledgertest.Owner)}
	pool, err := pgxpool.New(t.Context(), environment[envDatabaseURL])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("select taskledger.enqueue('many.k' || n, '1') from generate_series(1, $1::integer) n", kinds-2)
	exec("select taskledger.enqueue('worse', n::text) from generate_series(1, 5) n")
	exec("select taskledger.enqueue('worst', '1')")
	exec(`insert into taskledger.event (kind, biz_id, version, attempt, shard, type)
		select kind, biz_id, 2, 0, shard, 'buried' from taskledger.event where kind = 'worst'`)
	for n := range subscribers {
		exec("select taskledger.seek_feed($1, 0)", fmt.Sprintf("s%03d", n))
	}
	exec("alter table taskledger.event disable trigger user")
	exec("update taskledger.event set recorded_at = clock_timestamp() - interval '1 day'")
	(&servicetest.Bundle{T: t, DB: pool, AllAsOwner: true}).Project()
	status := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		stdout, stderr, exit := runUntil(ctx, t, environment, func() {}, append([]string{"status"}, args...)...)
		if exit != exitOK {
			t.Fatalf("exit %d: %s", exit, stderr)
		}
		return stdout
	}
	short := status()
	if n := strings.Count(short, "\n"); n > 150 {
		t.Errorf("%d lines, want at most 150", n)
	}
	_, table, _ := strings.Cut(short, "OTHER\n")
	rest := short
	for _, want := range []string{ // in this order
		"\nworst ", "\nworse ", "\nand 2,980 more kinds: taskledger status --all\n",
		"\nother subscribers, less far behind: 110; all: taskledger show subscribers\n",
		"\nand 2,979 more kinds without worker: taskledger status --all\n",
		"degraded: subscriber_behind: other subscribers that may also be late: 30; ",
		"\nand 80 more conditions subscriber_behind: taskledger status --all\n",
	} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("no %q, in this order, in\n%s", want, short)
		}
		rest = after
	}
	if !strings.HasPrefix(table, "worst ") {
		t.Errorf("the first kind is in %.100q", table)
	}
	long := status("--all")
	for _, name := range []string{"many.k1 ", "many.k2998 ", "s000 ", "subscriber s099 is "} {
		if !strings.Contains(long, name) {
			t.Errorf("--all has no %s", name)
		}
	}
	if strings.Contains(long, "--all") {
		t.Error("--all refers to itself")
	}
}
