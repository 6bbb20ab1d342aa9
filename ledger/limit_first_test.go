package ledger_test

import (
	"errors"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// An enqueue looks for limits only if there has been one. None is missed: not the first one, not one whose transaction
// began earlier, and not one of a logical replication, whose rows fire no ordinary trigger.
func TestFirstLimitIsNotMissed(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, ledgertest.Owner)
	ctx := t.Context()
	enqueue := func(bizID ledger.BizID) error {
		_, err := ledger.Enqueue(ctx, db, ledger.Key{Kind: flooded, BizID: bizID}, nil, nil)
		return err
	}
	if err := enqueue("before"); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, "set local session_replication_role = replica"); err != nil {
		t.Fatal(err)
	}
	if err := ledger.SetLimit(ctx, tx, ledger.Limit{Kind: flooded, MaxWaiting: 0}, ""); err != nil {
		t.Fatal(err)
	}
	if err := enqueue("before its commit"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	var full *ledger.OverloadError
	if err := enqueue("after its commit"); !errors.As(err, &full) {
		t.Errorf("after the commit of the limit: %v, want %T", err, full)
	}
	if _, err := ledger.Enqueue(ctx, db, ledger.Key{Kind: "test.other", BizID: "1"}, nil, nil); err != nil {
		t.Errorf("a kind without a limit: %v", err)
	}
}
