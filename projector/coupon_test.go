package projector_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

var errPoison = errors.New("poison")

// coupons counts the coupons that were enqueued and sent by campaign. An event whose args have "poison" fails.
func coupons() projector.Projection {
	return projector.Projection{
		Name:    "coupons",
		Version: 1,
		DDL: `create table campaign (name text primary key, enqueued bigint not null, sent bigint not null);
			create table coupon (id text primary key, campaign text not null, last integer not null);
			create index coupon_campaign on coupon (campaign)`,
		Apply: applyCoupons,
	}
}

func applyCoupons(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
	for _, e := range events {
		if e.Kind != "coupon.send" {
			continue
		}
		var args struct{ Campaign string }
		var err error
		switch e.Type {
		case ledger.EventEnqueued:
			if strings.Contains(string(e.Data), "poison") {
				return errPoison
			}
			if strings.Contains(string(e.Data), "panic") {
				panic("out of coupons")
			}
			if err := json.Unmarshal(e.Data, &args); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, `insert into coupon values ($1, $2, $3)`, string(e.BizID), args.Campaign,
				int64(e.Version))
			if err == nil {
				_, err = tx.Exec(ctx, `insert into campaign values ($1, 1, 0)
					on conflict (name) do update set enqueued = campaign.enqueued + 1`, args.Campaign)
			}
		case ledger.EventSucceeded:
			_, err = tx.Exec(ctx, `update campaign set sent = sent + 1
				where name = (select campaign from coupon where id = $1)`, string(e.BizID))
			if err == nil {
				_, err = tx.Exec(ctx, `update coupon set last = $2::bigint where id = $1 and last = $2::bigint - 1`,
					string(e.BizID), int64(e.Version))
			}
		default:
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ownPool returns a pool of a program with projections of its own.
func ownPool(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	pool := ledgertest.Pool(tb, ledgertest.App, "relay", "operator")
	ledgertest.AllowSchemas(tb, pool)
	return pool
}

// enqueueCoupons enqueues coupons of a campaign, and appends their succeeded events.
func enqueueCoupons(tb testing.TB, pool *pgxpool.Pool, campaign string, from, n int) {
	tb.Helper()
	entries := make([]ledger.Entry, n)
	finish := make([]ledger.AppendRequest, n)
	for i := range n {
		key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("order-%d", from+i))}
		entries[i] = ledger.Entry{Key: key, Args: json.RawMessage(`{"campaign":"` + campaign + `"}`)}
		finish[i] = ledger.AppendRequest{Key: key, Expected: 1, Type: ledger.EventSucceeded}
	}
	if _, err := ledger.EnqueueMany(tb.Context(), pool, entries); err != nil {
		tb.Fatal(err)
	}
	for _, r := range ledger.AppendEach(tb.Context(), pool, finish) {
		if r.Err != nil {
			tb.Fatal(r.Err)
		}
	}
}

// registered returns the projection coupons as the database has it; the zero value if it has none.
func registered(tb testing.TB, pool *pgxpool.Pool) projector.Registered {
	tb.Helper()
	all, err := projector.ReadProjections(tb.Context(), pool)
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range all {
		if r.Name == "coupons" {
			return r
		}
	}
	return projector.Registered{}
}

// awaitApplied waits until the projection coupons has applied every event that is committed now. Its projector may
// just have been started, and may not have registered it.
func awaitApplied(tb testing.TB, pool *pgxpool.Pool) {
	tb.Helper()
	await(tb, "the projection is registered", func() bool { return registered(tb, pool).Name != "" })
	var last int64
	if err := pool.QueryRow(tb.Context(), `select max(position) from taskledger.event`).Scan(&last); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	if err := projector.WaitFor(ctx, pool, "coupons", ledger.Position(last)); err != nil {
		tb.Fatal(err)
	}
}

// campaigns returns the table campaign as text.
func campaigns(tb testing.TB, pool *pgxpool.Pool) string {
	tb.Helper()
	var text string
	err := pool.QueryRow(tb.Context(), `select coalesce(string_agg(name || ' ' || enqueued || ' ' || sent, ', '
		order by name), '') from coupons.campaign`).Scan(&text)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// verifyCoupons fails the test if the tables differ from the events.
func verifyCoupons(tb testing.TB, pool *pgxpool.Pool, p projector.Projection) {
	tb.Helper()
	report, err := projector.VerifyProjection(tb.Context(), pool, p, nil)
	if err != nil {
		tb.Fatal(err)
	}
	for _, d := range report.Differences {
		tb.Error(d)
	}
}
