package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

var errPoison = errors.New("poison")

// coupons counts the coupons that were enqueued and sent by campaign. An event whose args have "poison" fails.
func coupons() outbox.Subscription {
	return outbox.Subscription{
		Name: "coupons",
		Tables: outbox.Tables{Version: 1, DDL: `
			create table campaign (name text primary key, enqueued bigint not null, sent bigint not null);
			create table coupon (id text primary key, campaign text not null, last integer not null);
			create index coupon_campaign on coupon (campaign)`},
		Handle: applyCoupons,
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

// tablesPool returns a pool of a program with subscribers that have tables.
func tablesPool(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	pool := ledgertest.Pool(tb, ledgertest.App, "relay", "operator", "subscriber")
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

// registered returns the state of the subscriber coupons; the zero value if it has none.
func registered(tb testing.TB, pool *pgxpool.Pool) subscribers.State {
	tb.Helper()
	all, err := subscribers.ReadStates(tb.Context(), pool)
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range all {
		if r.Name == "coupons" {
			return r
		}
	}
	return subscribers.State{}
}

// awaitApplied waits until the subscriber coupons has handled every event that is committed now. Its program
// may just have been started, and may not have registered it.
func awaitApplied(tb testing.TB, pool *pgxpool.Pool) {
	tb.Helper()
	await(tb, "the subscriber is registered", func() bool { return registered(tb, pool).Name != "" })
	awaitPassed(tb, pool)
}

// awaitPassed waits until the subscriber coupons has passed every event that is committed now.
func awaitPassed(tb testing.TB, pool *pgxpool.Pool) {
	tb.Helper()
	var last int64
	if err := pool.QueryRow(tb.Context(), `select max(position) from taskledger.event`).Scan(&last); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	if err := outbox.WaitFor(ctx, pool, "coupons", ledger.Position(last)); err != nil {
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
func verifyCoupons(tb testing.TB, pool *pgxpool.Pool, p outbox.Subscription) {
	tb.Helper()
	report, err := outbox.VerifyTables(tb.Context(), on(pool, p), nil)
	if err != nil {
		tb.Fatal(err)
	}
	for _, d := range report.Differences {
		tb.Error(d)
	}
}

// on returns a subscription on a pool.
func on(pool *pgxpool.Pool, s outbox.Subscription) outbox.Subscription {
	s.DB = pool
	return s
}

// quick returns subscriptions whose retries a test need not wait for.
func quick(pool *pgxpool.Pool, all ...outbox.Subscription) []outbox.Subscription {
	for i := range all {
		s := &all[i]
		s.DB, s.PageSize = pool, 20
		s.Idle, s.Standby, s.RetryFailed = 20*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	}
	return all
}

// start runs subscribers; stop ends them and waits until Subscribe has returned.
func start(tb testing.TB, all []outbox.Subscription) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, len(all))
	for _, s := range all {
		go func() { done <- outbox.Subscribe(ctx, s) }()
	}
	return sync.OnceFunc(func() {
		cancel()
		for range all {
			if err := <-done; err != nil {
				tb.Errorf("subscriber: %v", err)
			}
		}
	})
}

// await polls until ready returns true.
func await(tb testing.TB, what string, ready func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(patience); !ready(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("%s: still not after %s", what, patience)
		}
	}
}
