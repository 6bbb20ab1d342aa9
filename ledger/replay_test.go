package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

func replayed(t *testing.T, db ledger.DB, r ledger.Range) (positions []ledger.Position) {
	t.Helper()
	for e, err := range ledger.Events(t.Context(), db, r) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Login == "" {
			t.Errorf("%s has no login", e)
		}
		positions = append(positions, e.Position)
	}
	return positions
}

// However transactions commit, adjoining ranges contain each event once, and a range contains the same events each
// time, even after more of them were committed.
func TestReplayIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "operator")
	w := watch(t, pool)
	random := rand.New(rand.NewPCG(1, 2))
	var open []pgx.Tx
	var times []time.Time
	var early [][]ledger.Position // of the range up to each time, as it was read at once
	isLate := false
	upTo := func(at time.Time) ledger.Range { return ledger.Range{To: w.at(at)} }
	ledgertest.Enqueue(t, pool, ledger.Key{Kind: "k", BizID: "first"}, "")
	for n := range 50 {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		k := ledger.Key{Kind: "k", BizID: ledger.BizID(fmt.Sprint(n))}
		ledgertest.Enqueue(t, tx, k, "")
		ledgertest.Append(t, tx, k, ledger.EventStarted)
		if open = append(open, tx); len(open) > 3 || random.IntN(2) == 0 {
			i := random.IntN(len(open))
			isLate = isLate || i < len(open)-1
			if err := open[i].Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			open = slices.Delete(open, i, i+1)
		}
		w.poll()
		if n%10 == 0 {
			times = append(times, w.now())
			ledgertest.Enqueue(t, pool, ledger.Key{Kind: "then", BizID: k.BizID}, "")
			w.until(hasMoment, times[len(times)-1])
			early = append(early, replayed(t, pool, upTo(times[len(times)-1])))
		}
	}
	for _, tx := range open {
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !isLate {
		t.Fatal("no transaction was late")
	}
	var all []ledger.Position
	var from ledger.Moment
	for i, at := range times {
		to := upTo(at)
		byKind, byKey := to, to
		byKind.Kinds, byKey.Prefix = []ledger.Kind{"k"}, "k/"
		byKind.From, byKey.From = from, from
		if diff := difference.Of(replayed(t, pool, byKind), replayed(t, pool, byKey)); diff != "" {
			t.Errorf("up to time %d, by the kind and by the keys (-kind +keys):\n%s", i, diff)
		}
		if diff := difference.Of(early[i], replayed(t, pool, to)); diff != "" {
			t.Errorf("up to time %d, at once and later (-early +late):\n%s", i, diff)
		}
		all = append(all, replayed(t, pool, ledger.Range{From: from, To: to.To})...)
		from = to.To
	}
	all = append(all, replayed(t, pool, ledger.Range{From: from})...)
	if slices.IsSorted(all) {
		t.Error("no event was committed after a later one of another range: this proves nothing")
	}
	slices.Sort(all)
	if diff := difference.Of(replayed(t, pool, ledger.Range{}), all); diff != "" {
		t.Errorf("adjoining ranges (-all +ranges):\n%s", diff)
	}
}

// readBack returns the positions of a range, from the first one on. It reads two events at a time.
func readBack(t *testing.T, pool *pgxpool.Pool, r ledger.Range, walk int) (all []ledger.Position) {
	t.Helper()
	for o := (ledger.BackOptions{Limit: 2, Walk: walk}); ; {
		events, next, err := ledger.ReadBack(t.Context(), pool, r, o)
		if err != nil || len(events) > 2 {
			t.Fatalf("%d events: %v", len(events), err)
		}
		for _, e := range events {
			all = append(all, e.Position)
		}
		if o.Before = next; next == 0 {
			slices.Reverse(all)
			return all
		}
	}
}

// Options by which a read would not get on are refused.
func TestReadBackRefuses(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "operator")
	for field, o := range map[string]ledger.BackOptions{
		"limit": {}, "limit ": {Limit: -1}, "walk": {Limit: 1, Walk: -1}, "before": {Limit: 1, Before: -1},
	} {
		_, next, err := ledger.ReadBack(t.Context(), pool, ledger.Range{}, o)
		invalid, ok := errors.AsType[*ledger.InvalidError](err)
		if !ok || invalid.Field != strings.TrimSpace(field) {
			t.Errorf("%+v: next %d, %v, want an InvalidError about %s", o, next, err, field)
		}
	}
}

// Each filter selects the events it names, and a read that is continued after any event returns the rest.
func TestReplayFilters(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "operator")
	for _, name := range []string{"a/1", "a/12", "a/2", "a.b/1", "b/1"} {
		kind, id, _ := strings.Cut(name, "/")
		k := ledger.Key{Kind: ledger.Kind(kind), BizID: ledger.BizID(id)}
		options := &ledger.EnqueueOptions{Actor: "it's " + id}
		if _, err := ledger.Enqueue(t.Context(), pool, k, nil, options); err != nil {
			t.Fatal(err)
		}
		ledgertest.Append(t, pool, k, ledger.EventStarted, ledger.EventFailed)
	}
	for name, test := range map[string]struct {
		r    ledger.Range
		want []ledger.Position
	}{
		"kind": {
			r:    ledger.Range{Kinds: []ledger.Kind{"a", "b"}},
			want: []ledger.Position{1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14, 15},
		},
		"type":  {r: ledger.Range{Types: []ledger.EventType{"failed"}}, want: []ledger.Position{3, 6, 9, 12, 15}},
		"actor": {r: ledger.Range{Actor: "it's 1"}, want: []ledger.Position{1, 10, 13}},
		"prefix": {
			r:    ledger.Range{Prefix: "a/1", Types: []ledger.EventType{"enqueued"}},
			want: []ledger.Position{1, 4},
		},
		"no wildcard": {r: ledger.Range{Prefix: "a%"}},
		"after":       {r: ledger.Range{StartAfter: 13}, want: []ledger.Position{14, 15}},
	} {
		got := replayed(t, pool, test.r)
		if diff := difference.Of(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		newest, _, err := ledger.ReadBack(t.Context(), pool, test.r, ledger.BackOptions{Limit: 3})
		slices.Reverse(newest)
		if err != nil || len(newest) != min(3, len(got)) {
			t.Errorf("%s: %d of the newest events, %v", name, len(newest), err)
		}
		for i, e := range newest {
			if e.Position != got[len(got)-len(newest)+i] || !test.r.Matches(e) {
				t.Errorf("%s: %s at position %d is one of the newest events %v", name, e, e.Position, got)
			}
		}
		for _, walk := range []int{0, 1, 4} {
			if back := readBack(t, pool, test.r, walk); !slices.Equal(back, got) {
				t.Errorf("%s: read back %v by %d events, want %v", name, back, walk, got)
			}
		}
		stats, err := ledger.Stats(t.Context(), pool, test.r)
		counted := int64(0)
		for _, s := range stats {
			counted += s.Events
		}
		if err != nil || counted != int64(len(got)) {
			t.Errorf("%s: stats %v, %v", name, stats, err)
		}
		for i, p := range got {
			test.r.StartAfter = p
			if diff := difference.OfContents(got[i+1:], replayed(t, pool, test.r)); diff != "" {
				t.Errorf("%s, continued after %d (-want +got):\n%s", name, p, diff)
			}
		}
	}
	for want, r := range map[string]ledger.Range{
		"invalid type \"done\": must be one of enqueued": {Types: []ledger.EventType{"done"}},
		"invalid kind: must not be empty":                {Kinds: []ledger.Kind{""}},
		"invalid prefix":                                 {Prefix: "\x00"},
		"invalid actor":                                  {Actor: "\xff"},
		"invalid after":                                  {StartAfter: -1},
	} {
		for _, err := range ledger.Events(t.Context(), pool, r) {
			wantText(t, err, want)
		}
	}
}

// A loop over events may end within a page and use the connection; an error ends it.
func TestEventsEndWithTheLoop(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "operator")
	for n := range 20 {
		ledgertest.Enqueue(t, pool, ledger.Key{Kind: "k", BizID: ledger.BizID(fmt.Sprint(n))}, "")
	}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		n := 0
		for e, err := range ledger.Events(t.Context(), tx, ledger.Range{}) {
			if err != nil {
				return err
			}
			if _, err := ledger.Load(t.Context(), tx, e.Key); err != nil { // db is not in use
				return err
			}
			if n++; n == 5 {
				break
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		for _, err := range ledger.Events(ctx, tx, ledger.Range{}) {
			if n++; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want that the context ended", err)
			}
		}
		if n != 6 {
			t.Errorf("%d events and errors, want 5 and 1", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The memory of a replay does not grow with the ledger, nor with its args. It measures the heap of the process, so no
// other test runs meanwhile.
func TestReplayInFlatMemory(t *testing.T) {
	pool := ledgertest.Pool(t, ledgertest.Owner)
	history(t, pool, 20_000)
	large(t, pool, 400, 200_000)
	highest := uint64(0)
	n := 0
	for e, err := range ledger.Events(t.Context(), pool, ledger.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n%100 == 0 && e.Kind == "large" || n%20_000 == 0 {
			runtime.GC()
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			highest = max(highest, now.HeapAlloc)
		}
	}
	const most = 64 << 20
	if n != 60_400 || highest > most {
		t.Errorf("%d events, a heap of %d MiB, want at most %d", n, highest>>20, most>>20)
	}
}

// large inserts events with args of size bytes each.
func large(t *testing.T, pool *pgxpool.Pool, events, size int) {
	t.Helper()
	const statement = `
		with tx as materialized (select pg_current_xact_id() as xid)
		insert into taskledger.event (xid, version, attempt, shard, type, kind, biz_id, data)
		select tx.xid, 1, 0, 0, 'enqueued', 'large', n::text, to_json(repeat('x', $2::integer))
		  from tx, generate_series(1, $1::integer) n`
	if _, err := pool.Exec(t.Context(), statement, events, size); err != nil {
		t.Fatal(err)
	}
}
