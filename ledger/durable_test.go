package ledger_test

import (
	"errors"
	"testing"

	"github.com/taskledger/taskledger/internal/crashtest"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Events that are acknowledged outlive a crash of PostgreSQL, whatever synchronous_commit is: the start of an attempt,
// however it is appended, on which an attempt that must not be repeated depends; its progress; an act of an operator;
// and the first event of a transaction with Durable. That of another transaction does not, so the test can fail.
func TestAcknowledgedEventsOutliveACrash(t *testing.T) {
	server := crashtest.New(t)
	pool := server.Pool(ledgertest.App, "operator")
	ctx := t.Context()
	key := func(id string) ledger.Key { return ledger.Key{Kind: "pay", BizID: ledger.BizID(id)} }
	event := func(id string, t ledger.EventType) ledger.AppendRequest { return ledgertest.Request(key(id), 1, t) }
	claim := func(id string) error {
		const sql = "select version from taskledger.claim('pay', $1, 'w-1')"
		var version int
		_, err := pgquery.Row(ctx, pool, sql, []any{id}, &version)
		return err
	}
	enqueue := func(o *ledger.TxOptions, end func(*ledger.Tx, ledger.Key) error) func(string) error {
		return func(id string) error {
			tx, err := ledger.Begin(ctx, pool, o)
			if err != nil {
				return err
			}
			defer tx.Rollback(ctx)
			return end(tx, key(id+", enqueued"))
		}
	}
	commit := func(tx *ledger.Tx, k ledger.Key) error {
		if _, err := ledger.Enqueue(ctx, tx, k, nil, nil); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}
	durable := &ledger.TxOptions{Durable: true}
	for name, test := range map[string]struct {
		before, act func(id string) error
		key         func(id string) ledger.Key
		want        ledger.State
		version     ledger.Version // of the last event; 0: any
	}{
		"append": {
			act: func(id string) error {
				_, err := ledger.Append(ctx, pool, event(id, ledger.EventStarted))
				return err
			}, want: ledger.StateRunning,
		},
		"append each": {
			act: func(id string) error {
				return ledger.AppendEach(ctx, pool, []ledger.AppendRequest{event(id, ledger.EventStarted)})[0].Err
			}, want: ledger.StateRunning,
		},
		"append each after what was read": {
			before: func(string) error { // a crash has ended the last incarnation
				beginIncarnation(t, server.URL(ledgertest.Database))
				return nil
			},
			act: func(id string) error {
				requests := []ledger.AppendRequest{event(id, ledger.EventStarted)}
				readLast(t, pool, requests)
				return ledger.AppendEach(ctx, pool, requests)[0].Err
			}, want: ledger.StateRunning,
		},
		"progress": {
			before: claim,
			act: func(id string) error {
				r := event(id, ledger.EventProgressed)
				r.Expected = 2
				_, err := ledger.Append(ctx, pool, r)
				return err
			}, want: ledger.StateRunning, version: 3,
		},
		"claim": {act: claim, want: ledger.StateRunning},
		"cancel": {
			act: func(id string) error {
				_, err := ledger.Append(ctx, pool, event(id, ledger.EventCancelled))
				return err
			}, want: ledger.StateCancelled,
		},
		"enqueue": {act: enqueue(durable, commit), key: func(id string) ledger.Key { return key(id + ", enqueued") },
			want: ledger.StateAvailable},
		"enqueue and commit": {
			act: enqueue(durable, func(tx *ledger.Tx, k ledger.Key) error {
				_, err := tx.EnqueueAndCommit(ctx, k, nil, nil)
				return err
			}), key: func(id string) ledger.Key { return key(id + ", enqueued") }, want: ledger.StateAvailable,
		},
		"not durable": {act: enqueue(nil, commit), key: func(id string) ledger.Key { return key(id + ", enqueued") }},
	} {
		t.Run(name, func(t *testing.T) {
			ledgertest.Enqueue(t, pool, key(name), "")
			if _, err := pool.Exec(ctx, "select taskledger.heartbeat('w-1', '{pay}')"); err != nil {
				t.Fatal(err)
			}
			if test.before != nil {
				if err := test.before(name); err != nil {
					t.Fatal(err)
				}
			}
			server.Flush()
			if err := test.act(name); err != nil {
				t.Fatal(err)
			}
			server.Crash(pool)
			k := key(name)
			if test.key != nil {
				k = test.key(name)
			}
			task, err := ledger.Load(ctx, pool, k)
			if err != nil && !errors.Is(err, ledger.ErrUnknownTask) {
				t.Fatal(err)
			}
			if task.State != test.want || test.version > task.Version {
				t.Errorf("after the crash: %q at version %d, want %q", task.State, task.Version, test.want)
			}
		})
	}
}
