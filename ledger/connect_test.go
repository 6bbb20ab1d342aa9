package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/stdsql"
	"github.com/taskledger/taskledger/migrations"
)

// callsOn calls each function that needs the database, on db, and returns their errors.
func callsOn(ctx context.Context, db ledger.DB) map[string]error {
	k := ledger.Key{Kind: "connect", BizID: "1"}
	r := ledger.AppendRequest{Key: k, Expected: 1, Type: ledger.EventStarted}
	calls := map[string]error{
		"Enqueue":     errorOf(ledger.Enqueue(ctx, db, k, nil, nil)),
		"EnqueueMany": errorOf(ledger.EnqueueMany(ctx, db, []ledger.Entry{{Key: k}})),
		"Append":      errorOf(ledger.Append(ctx, db, r)),
		"AppendEach":  ledger.AppendEach(ctx, db, []ledger.AppendRequest{r})[0].Err,
		"Load":        errorOf(ledger.Load(ctx, db, k)),
		"History":     errorOf(ledger.History(ctx, db, k)),
		"OpenFeed":    errorOf(feed.Open(ctx, db, "r", nil)),
	}
	for _, err := range ledger.Read(ctx, db, 0, 1) {
		calls["Read"] = err
	}
	return calls
}

// poolAt returns a pool of connections to address. It does not connect.
func poolAt(t *testing.T, address string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func TestNotMigratedNamesTheCure(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]string{
		"no schema":    "drop schema taskledger, taskledger_internal cascade",
		"empty schema": "drop schema taskledger, taskledger_internal cascade; create schema taskledger",
		"older": "drop table taskledger.event cascade; alter table taskledger.cursor drop column origin cascade; " +
			"create table taskledger.event (kind text, biz_id text, version integer, type text)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t, ledgertest.Owner)
			if _, err := pool.Exec(t.Context(), spoil); err != nil {
				t.Fatal(err)
			}
			for call, err := range callsOn(t.Context(), pool) {
				const cure = "taskledger migrate up"
				if !errors.Is(err, ledger.ErrNotMigrated) || !strings.Contains(fmt.Sprint(err), cure) {
					t.Errorf("%s: %v", call, err)
				}
			}
		})
	}
}

// wantUnavailable checks that the error of every call names the causes, is retryable or not, and does not contain
// the password.
func wantUnavailable(t *testing.T, address, password string, retryable bool, causes ...string) {
	t.Helper()
	pool := poolAt(t, address)
	for driver, db := range map[string]ledger.DB{"pgx": pool, "database/sql": stdsql.Wrap(openSQL(t, pool))} {
		for call, err := range callsOn(t.Context(), db) {
			wantError(t, err, ledger.ErrUnavailable)
			if ledger.Retryable(err) != retryable {
				t.Errorf("%s with %s: %v, retryable %v", call, driver, err, !retryable)
			}
			for _, cause := range causes {
				if !strings.Contains(fmt.Sprint(err), cause) {
					t.Errorf("%s with %s: %v, want %q", call, driver, err, cause)
				}
			}
			if strings.Contains(fmt.Sprint(err), password) {
				t.Errorf("%s with %s: the error contains the password: %v", call, driver, err)
			}
		}
	}
	for call, err := range map[string]error{
		"Up":    migrations.Up(t.Context(), address),
		"Check": migrations.Check(t.Context(), address),
	} {
		if err == nil || strings.Contains(err.Error(), password) {
			t.Errorf("%s: %v", call, err)
		}
	}
}

func TestWrongCredentialsNameTheCure(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(ledgertest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("password", func(t *testing.T) {
		wrong := *address
		wrong.User = url.UserPassword("postgres", "not-the-secret")
		wantUnavailable(t, wrong.String(), "not-the-secret", false, "password authentication failed")
	})
	t.Run("user", func(t *testing.T) {
		wrong := *address
		wrong.User = url.UserPassword("nobody", "not-the-secret")
		wantUnavailable(t, wrong.String(), "not-the-secret", false, "nobody")
	})
	t.Run("database", func(t *testing.T) {
		wrong := *address
		wrong.Path = "/missing"
		password, _ := wrong.User.Password()
		wantUnavailable(t, wrong.String(), password, false, `database "missing" does not exist`)
	})
}

func TestUnreachableServerNamesTheCure(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	const password = "not-the-secret"
	wantUnavailable(t, "postgres://me:"+password+"@"+address+"/shop", password, true, address, "connection refused")
}

// A server that accepts a connection and sends nothing is waited for until the context ends.
func TestSilentServerIsLeftToTheContext(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if conn, err := listener.Accept(); err == nil {
			defer conn.Close()
			cancel() // the client is connected and waits for a message
			<-t.Context().Done()
		}
	}()
	pool := poolAt(t, "postgres://me:not-the-secret@"+listener.Addr().String()+"/shop?sslmode=disable")
	_, err = ledger.Load(ctx, pool, ledger.Key{Kind: "connect", BizID: "1"})
	wantError(t, err, context.Canceled)
}

func TestLostServerIsRetryable(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, nil)
	pool := poolAt(t, server.URL(ledgertest.Database))
	k := ledger.Key{Kind: "connect", BizID: "1"}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ledgertest.Enqueue(t, tx, k, "")
	sqlTx, err := openSQL(t, pool).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, db := range []ledger.DB{tx, stdsql.Wrap(sqlTx), pool} {
		var err error
		for err == nil { // backends run for some milliseconds after the postmaster is killed
			_, err = ledger.Enqueue(t.Context(), db, k, nil, nil)
		}
		_, again := ledger.Enqueue(t.Context(), db, k, nil, nil)
		for _, err := range []error{err, again} {
			if !ledger.Retryable(err) {
				t.Errorf("%v (%[1]T) is not retryable", err)
			}
		}
	}
	if err := tx.Rollback(t.Context()); err == nil {
		t.Error("rolled back on a dead server")
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	ledgertest.Enqueue(t, pool, k, "") // the key is new, because the transaction was lost
}

// The error of a role without rights names the missing right.
func TestMissingRightsNameTheCure(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	producer := ledgertest.As(t, pool, "producer")
	_, err := ledger.Load(t.Context(), producer, ledger.Key{Kind: "connect", BizID: "1"})
	if sqlState(err) != "42501" || !strings.Contains(err.Error(), "permission denied for ") {
		t.Errorf("got %v", err)
	}
}
