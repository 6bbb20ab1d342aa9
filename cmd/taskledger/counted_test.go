package main

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A number that is counted up to 10,000 is not shown as if it were exact.
func TestBoundedCountsReportTheirBound(t *testing.T) {
	t.Parallel()
	environment := map[string]string{envDatabaseURL: ledgertest.URL(t, ledgertest.Owner)}
	pool, err := pgxpool.New(t.Context(), environment[envDatabaseURL])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), `
		insert into taskledger.projection (name, version, shape, tables, parks) values ('coupons', 1, '', '{}', true);
		insert into taskledger.projection_parked (projection, kind, biz_id, version, position, error, failures, state)
		select 'coupons', s, n::text, 1, n, 'bad', 1, s
		  from unnest(array['parked', 'skipped']) s, generate_series(1, 10500) n;
		insert into taskledger.parked (position, kind, biz_id, version, reason)
		select n, 'a', n::text, 1, 'too large' from generate_series(1, 10500) n`); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ command, want string }{
		{command: "show projections", want: `coupons.*\b10,000\+.*\b10,000\+`},
		{command: "status", want: `parked +10,000\+`},
		{command: "status", want: `projection coupons has parked events: 10,000\+`},
		{command: "status", want: `cannot be published: 10,000\+`},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		stdout, _, _ := runUntil(ctx, t, environment, func() {}, strings.Fields(test.command)...)
		cancel()
		if !regexp.MustCompile(test.want).MatchString(stdout) {
			t.Errorf("%s: no %s in\n%s", test.command, test.want, stdout)
		}
	}
}
