package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/stdsql"
)

// tagger is a hook that adds a tag to tasks, rejects the task refuse, and records its calls in notes.
type tagger struct {
	tag    string
	refuse ledger.BizID
	notes  *[]string
}

var errRefused = errors.New("over the quota")

func (h tagger) hook() ledger.EnqueueHook {
	return ledger.EnqueueHook{BeforeEnqueue: h.beforeEnqueue, AfterEnqueue: h.afterEnqueue}
}

func (h tagger) beforeEnqueue(_ context.Context, k ledger.Key, args json.RawMessage, o *ledger.EnqueueOptions) error {
	*h.notes = append(*h.notes, fmt.Sprintf("before %s: %s %s", h.tag, k.BizID, args))
	if k.BizID == h.refuse {
		return errRefused
	}
	if k.BizID == "panics" {
		panic("a fault")
	}
	o.Meta.Tags = append(o.Meta.Tags, h.tag)
	return nil
}

func (h tagger) afterEnqueue(_ context.Context, k ledger.Key, answer ledger.Enqueued, err error) {
	*h.notes = append(*h.notes, fmt.Sprintf("after %s: %s new=%t error=%t", h.tag, k.BizID, answer.New, err != nil))
}

// The hooks of a kind are called before and after each enqueue, with one entry or many, on pgx or database/sql.
func TestHooksAroundEnqueue(t *testing.T) {
	t.Parallel()
	type (
		kind    = ledger.TypedKind[int]
		options = ledger.EnqueueOptions
		enqueue func(context.Context, ledger.DB, kind, ledger.BizID, *options) (ledger.Enqueued, error)
	)
	one := func(ctx context.Context, db ledger.DB, k kind, id ledger.BizID, o *options) (ledger.Enqueued, error) {
		return k.Enqueue(ctx, db, id, 7, o)
	}
	many := func(f func(context.Context, ledger.DB, []ledger.Entry) ([]ledger.Enqueued, error)) enqueue {
		return func(ctx context.Context, db ledger.DB, k kind, id ledger.BizID, o *options) (ledger.Enqueued, error) {
			entry, err := k.Entry(id, 7, o)
			if err != nil {
				return ledger.Enqueued{}, err
			}
			answers, err := f(ctx, db, []ledger.Entry{entry})
			if err != nil {
				return ledger.Enqueued{}, err
			}
			return answers[0], nil
		}
	}
	pool := ledgertest.Pool(t)
	sqlDB := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = sqlDB.Close() })
	for name, test := range map[string]struct {
		db      ledger.DB
		enqueue enqueue
	}{
		"one":          {db: pool, enqueue: one},
		"many":         {db: pool, enqueue: many(ledger.EnqueueMany)},
		"in-order":     {db: pool, enqueue: many(ledger.EnqueueInOrder)},
		"database-sql": {db: stdsql.Wrap(sqlDB), enqueue: one},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var notes []string
			k := ledger.MustKind[int](ledger.Kind("test.hooks."+name),
				tagger{tag: "a", refuse: "x", notes: &notes}.hook(), ledger.EnqueueHook{},
				tagger{tag: "b", refuse: "refused", notes: &notes}.hook())
			tags := make([]string, 1, 8) // has capacity that an append could write to
			tags[0] = "own"
			o := &ledger.EnqueueOptions{Meta: ledger.Meta{Tags: tags}}
			for range 2 {
				if _, err := test.enqueue(t.Context(), test.db, k, "o-1", o); err != nil {
					t.Fatal(err)
				}
			}
			_, err := test.enqueue(t.Context(), test.db, k, "refused", nil)
			const text = "hook: over the quota"
			if !errors.Is(err, errRefused) || !strings.Contains(err.Error(), text) {
				t.Errorf("error %v", err)
			}
			want := []string{
				"before a: o-1 7", "before b: o-1 7",
				"after b: o-1 new=true error=false", "after a: o-1 new=true error=false",
				"before a: o-1 7", "before b: o-1 7",
				"after b: o-1 new=false error=false", "after a: o-1 new=false error=false",
				"before a: refused 7", "before b: refused 7",
				"after b: refused new=false error=true", "after a: refused new=false error=true",
			}
			if diff := difference.Of(want, notes); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			history, err := ledger.History(t.Context(), pool, ledger.Key{Kind: k.Name(), BizID: "o-1"})
			if err != nil || len(history) != 1 {
				t.Fatal(history, err)
			}
			meta, err := ledger.ParseMeta(history[0].Meta)
			if diff := difference.Of([]string{"own", "a", "b"}, meta.Tags); diff != "" || err != nil {
				t.Errorf("%v, tags (-want +got):\n%s", err, diff)
			}
			if len(o.Meta.Tags) != 1 || tags[:2][1] != "" {
				t.Errorf("the caller's options were changed: %v", tags[:2])
			}
			_, err = ledger.Load(t.Context(), pool, k.Key("refused"))
			wantError(t, err, ledger.ErrUnknownTask)
		})
	}
}

// If a hook rejects one entry or panics, no entry is enqueued, and the transaction stays usable. The panic reaches
// the caller.
func TestHookRefusesOneOfMany(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	var notes []string
	k := ledger.MustKind[int]("test.hooks", tagger{tag: "a", refuse: "o-2", notes: &notes}.hook())
	many := func(ctx context.Context, db ledger.DB, ids ...ledger.BizID) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("panic: %v", v)
			}
		}()
		var entries []ledger.Entry
		for i, id := range ids {
			entry, err := k.Entry(id, i, nil)
			if err != nil {
				return err
			}
			entries = append(entries, entry)
		}
		_, err = ledger.EnqueueMany(ctx, db, entries)
		return err
	}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		err := many(t.Context(), tx, "o-1", "o-2", "o-3")
		if !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "entry 1") {
			t.Errorf("error %v", err)
		}
		if err := many(t.Context(), tx, "o-4", "panics"); err == nil || err.Error() != "panic: a fault" {
			t.Errorf("error %v", err)
		}
		return many(t.Context(), tx, "o-5")
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of(map[ledger.BizID]int{"o-5": 0}, ledgertest.Enqueued(t, pool, k)); diff != "" {
		t.Errorf("enqueued (-want +got):\n%s", diff)
	}
}
