package health_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A transaction that has taken a permit, or changed a limit, and was prepared is reported with the statement that ends
// it. That statement works.
func TestPreparedTransactionsHoldStarts(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, map[string]string{"max_prepared_transactions": "2"})
	db, err := pgxpool.New(t.Context(), server.URL("taskledger"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	limit := ledger.StartLimit{
		Name: "partner-x", Kinds: map[ledger.Kind]int{"coupon.send": 1}, MaxRunning: new(1)}
	if err := ledger.SetStartLimit(t.Context(), db, limit, "ada"); err != nil {
		t.Fatal(err)
	}
	k := ledgertest.Key(t, "coupon.send/1")
	ledgertest.Enqueue(t, db, k, "")
	for held, do := range map[string]func(ledger.DB) error{
		"permits of limits": func(tx ledger.DB) error {
			_, err := ledger.Append(context.Background(), tx, ledger.AppendRequest{
				Key: k, Expected: 1, Type: ledger.EventStarted, Actor: "w"})
			return err
		},
		"limits": func(tx ledger.DB) error {
			return ledger.SetStartLimit(context.Background(), tx, limit, "ada")
		},
	} {
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := do(tx); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "prepare transaction 'it''s held'"); err != nil {
			t.Fatal(err)
		}
		_ = tx.Rollback(t.Context())
		time.Sleep(2 * time.Millisecond)
		c := health.Config{DB: db, Only: []health.Name{health.StartsHeld},
			Thresholds: map[health.Name]time.Duration{health.StartsHeld: time.Millisecond}}
		r, err := health.Read(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Degraded) != 1 || !strings.HasSuffix(r.Degraded[0].Text, "holds "+held) {
			t.Fatalf("%s: degraded %+v", held, r.Degraded)
		}
		_, cure, _ := strings.Cut(r.Degraded[0].Cure, "or: ")
		if _, err := db.Exec(t.Context(), cure); err != nil {
			t.Fatalf("%s: %v", cure, err)
		}
		if r, err = health.Read(t.Context(), c); err != nil || len(r.Degraded) != 0 {
			t.Errorf("%s: after the cure %+v, %v", held, r.Degraded, err)
		}
	}
}
