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
		select taskledger.seek_feed('coupons', 0);
		insert into taskledger.subscriber_state (reader, version, shape, tables, parks)
		values ('subscriber/coupons', 0, '', '{}', true);
		insert into taskledger.subscriber_parked (reader, kind, biz_id, version, position, error, failures, state)
		select 'subscriber/coupons', s, n::text, 1, n, 'bad', 1, s
		  from unnest(array['parked', 'discarded']) s, generate_series(1, 10500) n;
		insert into taskledger.parked (position, kind, biz_id, version, reason)
		select n, 'a', n::text, 1, 'too large' from generate_series(1, 10500) n`); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ command, want string }{
		{command: "show subscribers", want: `coupons.*\b10,000\+`},
		{command: "show subscriber coupons", want: `discarded +10,000\+`},
		{command: "status", want: `parked +10,000\+`},
		{command: "status", want: `subscriber coupons has parked events: 10,000\+`},
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
