package projector_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// scribble lets several writers append random valid events to few tasks, as the owner, because no role may append all
// of them. Every fifth transaction is rolled back.
func scribble(tb testing.TB, pool *pgxpool.Pool, seed uint64, writers, transactions int) {
	tb.Helper()
	pool = ledgertest.As(tb, pool, ledgertest.Owner)
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w)))
			for range transactions {
				if err := transaction(tb.Context(), pool, random); err != nil {
					tb.Errorf("writer %d: %v", w, err)
					return
				}
			}
		})
	}
	group.Wait()
	if tb.Failed() {
		tb.FailNow()
	}
}

var errRollBack = errors.New("roll back")

func transaction(ctx context.Context, pool *pgxpool.Pool, random *rand.Rand) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for range 1 + random.IntN(4) {
			if err := step(ctx, tx, random); err != nil {
				return err
			}
		}
		if random.IntN(5) == 0 {
			return errRollBack
		}
		return nil
	})
	var conflict *ledger.ConflictError
	// deadlocks, since transactions lock the keys in any order
	if errors.Is(err, errRollBack) || errors.As(err, &conflict) || ledger.Retryable(err) {
		return nil
	}
	return err
}

// step enqueues a task or appends an event that is valid in its state.
func step(ctx context.Context, tx pgx.Tx, random *rand.Rand) error {
	key := ledger.Key{
		Kind:  []ledger.Kind{"a", "a.b", "c"}[random.IntN(3)],
		BizID: ledger.BizID(fmt.Sprintf(`%d "{\},' 🎟`, random.IntN(15))),
	}
	task, err := ledger.Load(ctx, tx, key)
	if errors.Is(err, ledger.ErrUnknownTask) {
		var o ledger.EnqueueOptions
		if random.IntN(3) == 0 {
			o.RunIn = time.Hour
		}
		if random.IntN(2) == 0 {
			o.Meta.Tags = []string{fmt.Sprintf(`tag %d "{\},'`, random.IntN(3)), "all", "all"}
		}
		_, err = ledger.Enqueue(ctx, tx, key, json.RawMessage(`{"a":1}`), &o)
		return err
	}
	if err != nil {
		return err
	}
	may := slices.DeleteFunc(ledger.Transitions(), func(t ledger.Transition) bool {
		return !slices.Contains(t.From, task.State) || t.Type == ledger.EventLinedUp // which only an enqueue appends
	})
	if len(may) == 0 {
		return nil
	}
	r := ledgertest.Request(key, task.Version, may[random.IntN(len(may))].Type)
	r.Data = json.RawMessage(fmt.Sprintf(`{"error":{"message":"no \"%d\" {\\} 'é"}}`, random.IntN(1000)))
	_, err = ledger.Append(ctx, tx, r)
	return err
}
