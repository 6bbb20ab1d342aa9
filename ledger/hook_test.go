package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/stdsql"
)

// tagger is a hook that adds a tag to tasks, refuses those it is told to, and notes what it is told.
type tagger struct {
	ledger.EnqueueHookDefaults
	tag    string
	refuse ledger.BizID
	notes  *[]string
}

var errRefused = errors.New("over the quota")

func (h tagger) BeforeEnqueue(_ context.Context, k ledger.Key, args json.RawMessage, o *ledger.EnqueueOptions) error {
	*h.notes = append(*h.notes, fmt.Sprintf("before %s: %s %s", h.tag, k.BizID, args))
	if k.BizID == h.refuse {
		return errRefused
	}
	if k.BizID == "panics" {
		panic("at the disco")
	}
	o.Meta.Tags = append(o.Meta.Tags, h.tag)
	return nil
}

func (h tagger) AfterEnqueue(_ context.Context, k ledger.Key, answer ledger.Enqueued, err error) {
	*h.notes = append(*h.notes, fmt.Sprintf("after %s: %s new=%t error=%t", h.tag, k.BizID, answer.New, err != nil))
}

// Hooks of a kind are around each enqueue by way of it, one by one or many, of pgx or database/sql.
func TestHooksAroundEnqueue(t *testing.T) {
	t.Parallel()
	type enqueue func(ctx context.Context, db ledger.DB, k ledger.TypedKind[int], id ledger.BizID, o *ledger.EnqueueOptions) (ledger.Enqueued, error)
	one := func(ctx context.Context, db ledger.DB, k ledger.TypedKind[int], id ledger.BizID, o *ledger.EnqueueOptions) (ledger.Enqueued, error) {
		return k.Enqueue(ctx, db, id, 7, o)
	}
	all := func(f func(context.Context, ledger.DB, []ledger.Entry) ([]ledger.Enqueued, error)) enqueue {
		return func(ctx context.Context, db ledger.DB, k ledger.TypedKind[int], id ledger.BizID, o *ledger.EnqueueOptions) (ledger.Enqueued, error) {
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
		"one":          {pool, one},
		"many":         {pool, all(ledger.EnqueueMany)},
		"in-order":     {pool, all(ledger.EnqueueInOrder)},
		"database-sql": {stdsql.Wrap(sqlDB), one},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var notes []string
			k := ledger.MustKind[int](ledger.Kind("test.hooks."+name), tagger{tag: "a", refuse: "x", notes: &notes}, nil, tagger{tag: "b", refuse: "refused", notes: &notes})
			tags := make([]string, 1, 8) // room to write into
			tags[0] = "own"
			options := &ledger.EnqueueOptions{Meta: ledger.Meta{Tags: tags}}
			for range 2 {
				if _, err := test.enqueue(t.Context(), test.db, k, "o-1", options); err != nil {
					t.Fatal(err)
				}
			}
			_, err := test.enqueue(t.Context(), test.db, k, "refused", nil)
			if !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "hook ledger_test.tagger: over the quota") {
				t.Errorf("error %v", err)
			}
			want := []string{
				"before a: o-1 7", "before b: o-1 7", "after b: o-1 new=true error=false", "after a: o-1 new=true error=false",
				"before a: o-1 7", "before b: o-1 7", "after b: o-1 new=false error=false", "after a: o-1 new=false error=false",
				"before a: refused 7", "before b: refused 7", "after b: refused new=false error=true", "after a: refused new=false error=true",
			}
			if diff := cmp.Diff(want, notes); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			history, err := ledger.History(t.Context(), pool, ledger.Key{Kind: k.Name(), BizID: "o-1"})
			if err != nil || len(history) != 1 {
				t.Fatal(history, err)
			}
			meta, err := ledger.ParseMeta(history[0].Meta)
			if diff := cmp.Diff([]string{"own", "a", "b"}, meta.Tags); diff != "" || err != nil {
				t.Errorf("%v, tags (-want +got):\n%s", err, diff)
			}
			if len(options.Meta.Tags) != 1 || tags[:2][1] != "" {
				t.Errorf("the caller's options were changed: %v", tags[:2])
			}
			if _, err := ledger.Load(t.Context(), pool, ledger.Key{Kind: k.Name(), BizID: "refused"}); !errors.Is(err, ledger.ErrUnknownTask) {
				t.Errorf("the refused task: %v", err)
			}
		})
	}
}

// One entry that a hook refuses refuses them all, and the transaction stays usable. So it is with a
// panic of a hook, which is the caller's.
func TestHookRefusesOneOfMany(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	var notes []string
	k := ledger.MustKind[int]("test.hooks", tagger{tag: "a", refuse: "o-2", notes: &notes})
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
		if err := many(t.Context(), tx, "o-1", "o-2", "o-3"); !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "entry 1") {
			t.Errorf("error %v", err)
		}
		if err := many(t.Context(), tx, "o-4", "panics"); err == nil || err.Error() != "panic: at the disco" {
			t.Errorf("error %v", err)
		}
		return many(t.Context(), tx, "o-5")
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[ledger.BizID]int{"o-5": 0}, ledgertest.Enqueued(t, pool, k)); diff != "" {
		t.Errorf("enqueued (-want +got):\n%s", diff)
	}
}
