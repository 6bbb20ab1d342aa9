package projector_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// lead enqueues tasks that an event of another one has caused; "" is no cause.
func lead(tb testing.TB, pool *pgxpool.Pool, causation string, names ...string) {
	tb.Helper()
	for _, name := range names {
		kind, id, _ := strings.Cut(name, "/")
		k := ledger.Key{Kind: ledger.Kind(kind), BizID: ledger.BizID(id)}
		if _, err := ledger.Enqueue(tb.Context(), pool, k, nil,
			&ledger.EnqueueOptions{Meta: ledger.Meta{Causation: causation}}); err != nil {
			tb.Fatal(err)
		}
	}
}

// event returns the id of the first event of a task.
func event(tb testing.TB, pool *pgxpool.Pool, name string) string {
	tb.Helper()
	kind, id, _ := strings.Cut(name, "/")
	history, err := ledger.History(tb.Context(), pool, ledger.Key{Kind: ledger.Kind(kind), BizID: ledger.BizID(id)})
	if err != nil {
		tb.Fatal(err)
	}
	return history[0].ID()
}

// outline returns a tree as text: causes, then the task and the tasks that it has caused, "…" for more.
func outline(tb testing.TB, pool *pgxpool.Pool, name string, l projector.TreeLimits) []string {
	tb.Helper()
	kind, id, _ := strings.Cut(name, "/")
	t, err := projector.ReadTree(tb.Context(), pool, ledger.Key{Kind: ledger.Kind(kind), BizID: ledger.BizID(id)}, l)
	if err != nil {
		tb.Fatal(err)
	}
	var lines []string
	for _, c := range t.Causes {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("< %s %s", c.Key, c.State)))
	}
	var walk func(indent string, n *projector.Node)
	walk = func(indent string, n *projector.Node) {
		line := fmt.Sprintf("%s%s %s", indent, n.Key, n.State)
		if n.More {
			line += " …"
		}
		lines = append(lines, line)
		for _, c := range n.Children {
			walk(indent+"  ", c)
		}
	}
	walk("", t.Task)
	return lines
}

// grow creates a tree: an order, whose coupon has mails and whose mail has no children.
func grow(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	pool := ledgertest.Pool(tb, ledgertest.App, "relay", "operator")
	// an event id of a task that is not in the ledger
	lead(tb, pool, "import/yesterday/1@5", "order.place/o/1@2 🎟")
	root := event(tb, pool, "order.place/o/1@2 🎟")
	lead(tb, pool, root, "coupon.send/o-1", "mail.send/o-1")
	lead(tb, pool, event(tb, pool, "coupon.send/o-1"), "mail.send/c-3", "mail.send/c-1", "mail.send/c-2")
	lead(tb, pool, event(tb, pool, "mail.send/c-1"), "log/1")
	lead(tb, pool, "whatever", "order.place/o-2")
	lead(tb, pool, "", "order.place/o-3")
	enqueueAndSucceed(tb, pool, 0, 3)
	project(tb, pool)
	return pool
}

func TestTree(t *testing.T) {
	t.Parallel()
	pool := grow(t)
	check(t, pool)
	const root = "order.place/o/1@2 🎟"
	for name, test := range map[string]struct {
		of     string
		limits projector.TreeLimits
		want   []string
	}{
		"whole": {of: root, limits: projector.TreeLimits{}, want: []string{
			"< import/yesterday",
			root + " available",
			"  coupon.send/o-1 available",
			"    mail.send/c-1 available",
			"      log/1 available",
			"    mail.send/c-2 available",
			"    mail.send/c-3 available",
			"  mail.send/o-1 available"}},
		"branch": {of: "mail.send/c-1", limits: projector.TreeLimits{}, want: []string{
			"< coupon.send/o-1 available", "< " + root + " available", "< import/yesterday",
			"mail.send/c-1 available", "  log/1 available"}},
		"leaf": {
			of:     "order.place/o-3",
			limits: projector.TreeLimits{},
			want:   []string{"order.place/o-3 available"},
		},
		"no id": {
			of:     "order.place/o-2",
			limits: projector.TreeLimits{},
			want:   []string{"order.place/o-2 available"},
		},
		"succeeded": {
			of:     "coupon.send/order-00000001",
			limits: projector.TreeLimits{},
			want:   []string{"coupon.send/order-00000001 succeeded"},
		},
		"depth": {of: root, limits: projector.TreeLimits{Depth: 1}, want: []string{
			"< import/yesterday", root + " available", "  coupon.send/o-1 available …", "  mail.send/o-1 available"}},
		"depth up": {
			of:     "log/1",
			limits: projector.TreeLimits{Depth: 1},
			want:   []string{"< mail.send/c-1 available", "log/1 available"},
		},
		"breadth": {of: root, limits: projector.TreeLimits{Breadth: 2}, want: []string{
			"< import/yesterday", root + " available", "  coupon.send/o-1 available …", "    mail.send/c-1 available",
			"      log/1 available",
			"    mail.send/c-2 available", "  mail.send/o-1 available"}},
		"breadth of all": {of: root, limits: projector.TreeLimits{Breadth: 1}, want: []string{
			"< import/yesterday", root + " available …", "  coupon.send/o-1 available …", "    mail.send/c-1 available",
			"      log/1 available"}},
		"tasks": {of: root, limits: projector.TreeLimits{Tasks: 5}, want: []string{ // with the root and its cause
			"< import/yesterday", root + " available", "  coupon.send/o-1 available …", "    mail.send/c-1 available …",
			"  mail.send/o-1 available …"}},
		"one task": {
			of:     root,
			limits: projector.TreeLimits{Tasks: 1},
			want:   []string{"< import/yesterday", root + " available …"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := difference.Of(test.want, outline(t, pool, test.of, test.limits)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Causes may form a cycle, and a task may name itself as its cause.
func TestTreeOfACircle(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	lead(t, pool, "k/c/1@1", "k/a")
	lead(t, pool, "k/a/1@1", "k/b")
	lead(t, pool, "k/b/1@1", "k/c")
	lead(t, pool, "k/self/1@1", "k/self")
	project(t, pool)
	for of, want := range map[string][]string{
		"k/a":    {"< k/c available", "< k/b available", "k/a available"},
		"k/self": {"k/self available"},
	} {
		if diff := difference.Of(want, outline(t, pool, of, projector.TreeLimits{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", of, diff)
		}
	}
}

// A tree that is cut reports it, above and below, also where a task of a cycle is among the children of another.
func TestTreeReportsItsCuts(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	lead(t, pool, "k/c/1@1", "k/a") // a cycle: a, b, c
	lead(t, pool, "k/a/1@1", "k/b")
	lead(t, pool, "k/b/1@1", "k/c")
	lead(t, pool, "k/c/1@1", "k/d", "k/e")
	project(t, pool)
	for _, c := range []struct {
		of            string
		limits        projector.TreeLimits
		isCut, hasTop bool
	}{
		{of: "k/b", limits: projector.TreeLimits{Depth: 1}, hasTop: true, isCut: true},
		{of: "k/b", limits: projector.TreeLimits{Depth: 2}},
		{of: "k/d", limits: projector.TreeLimits{Depth: 2}, hasTop: true},
		{of: "k/d", limits: projector.TreeLimits{Depth: 3}},
		{of: "k/c", limits: projector.TreeLimits{Breadth: 2}, isCut: true}, // a takes one of the two places
		{of: "k/c", limits: projector.TreeLimits{Breadth: 3}},
	} {
		kind, id, _ := strings.Cut(c.of, "/")
		key := ledger.Key{Kind: ledger.Kind(kind), BizID: ledger.BizID(id)}
		tree, err := projector.ReadTree(t.Context(), pool, key, c.limits)
		if err != nil {
			t.Fatal(err)
		}
		isCut := tree.Task.More
		for _, n := range tree.Task.Children {
			isCut = isCut || n.More
		}
		if isCut != c.isCut || tree.MoreCauses != c.hasTop {
			t.Errorf("%s, %+v: more below %t, above %t, want %t, %t", c.of, c.limits, isCut, tree.MoreCauses, c.isCut,
				c.hasTop)
		}
	}
}

func TestTreeRefuses(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	k := ledger.Key{Kind: "k", BizID: "a"}
	if _, err := projector.ReadTree(t.Context(), pool, k, projector.TreeLimits{}); !errors.Is(err,
		ledger.ErrUnknownTask) {
		t.Errorf("error %v", err)
	}
	for _, l := range []projector.TreeLimits{{Depth: -1}, {Depth: 101}, {Breadth: 1001}, {Tasks: 10_001}} {
		var invalid *ledger.InvalidError
		if _, err := projector.ReadTree(t.Context(), pool, k, l); !errors.As(err, &invalid) {
			t.Errorf("%+v: error %v", l, err)
		}
	}
}

// A row has a cause only if the causation is the id of an event.
func TestOddCauses(t *testing.T) {
	t.Parallel()
	pool := grow(t)
	for i, causation := range []string{
		"a..b/c/1@1", "/c/1@1", "a/1@1", "a//1@1", "a/b/0@1", "a/b/2147483648@1", "a/b/2147483647@-1", "a/b/+1@1",
		"a/b/1@+1", "a/b/1@", "a/b\n/1@1",
		"a/b/1@1\n", "a/\u0085/1@1", strings.Repeat("a", 128) + "/b/1@1", strings.Repeat("a", 129) + "/b/1@1",
		"a/" + strings.Repeat("é", 127) + "x/1@1",
		"a/" + strings.Repeat("é", 128) + "/1@1", "a/b/01@1",
	} {
		lead(t, pool, causation, fmt.Sprintf("odd/%d", i))
	}
	project(t, pool)
	check(t, pool)
	if lines := outline(t, pool, "order.place/o/1@2 🎟", projector.TreeLimits{}); len(lines) != 8 {
		t.Errorf("%q", lines)
	}
}

// ReadTree reads the tasks that a task has caused without reading others.
func TestTreeCostsWhatItAnswers(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	const tasks = 20_000
	entries := make([]ledger.Entry, tasks)
	for i := range entries {
		entries[i] = ledger.Entry{Key: ledger.Key{Kind: "k", BizID: ledger.BizID(fmt.Sprint(i))},
			Options: &ledger.EnqueueOptions{
				Meta: ledger.Meta{Causation: fmt.Sprintf("k/%d/1@1", i/10)}, // ten each
			}}
	}
	if _, err := ledger.EnqueueMany(t.Context(), pool, entries); err != nil {
		t.Fatal(err)
	}
	project(t, pool)
	// its cause, itself, and ten more
	if lines := outline(t, pool, "k/77", projector.TreeLimits{Depth: 1}); len(lines) != 12 {
		t.Errorf("%q", lines)
	}
	for _, statistics := range []string{"none", "analyze taskledger.task"} {
		if statistics != "none" {
			if _, err := pool.Exec(t.Context(), statistics); err != nil {
				t.Fatal(err)
			}
		}
		if blocks := blocksOf(t, pool, "tree_children", "{k/77,k/78,k/79}", 51, 153); blocks > 100 {
			t.Errorf("statistics %s: %d blocks for 30 rows", statistics, blocks)
		}
	}
}

// Of many predecessors a tree has as many as may be below one task, and the number of the others.
func TestTreeOfManyPredecessors(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	var after []ledger.Key
	for i := range 60 {
		k := ledger.Key{Kind: "part", BizID: ledger.BizID(fmt.Sprintf("%02d", i))}
		ledgertest.Enqueue(t, pool, k, `{}`)
		after = append(after, k)
	}
	k := ledger.Key{Kind: "whole", BizID: "1"}
	if _, err := ledger.Enqueue(t.Context(), pool, k, nil, &ledger.EnqueueOptions{After: after}); err != nil {
		t.Fatal(err)
	}
	for breadth, want := range map[int]int{1: 1, 0: 50, 60: 60, 100: 60} {
		tree, err := projector.ReadTree(t.Context(), pool, k, projector.TreeLimits{Breadth: breadth})
		if err != nil || len(tree.Task.After) != want || tree.Task.MoreAfter != 60-want {
			t.Errorf("breadth %d: %d predecessors and %d more, %v; want %d", breadth, len(tree.Task.After),
				tree.Task.MoreAfter, err, want)
		}
	}
}

// A tree has the predecessors of predecessors. One of two tasks is below both, with its own predecessors once; one that
// the ledger does not have is unknown, and the depth bounds them.
func TestTreeOfPredecessors(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	enqueue := func(bizID ledger.BizID, after ...ledger.BizID) ledger.Key {
		var o ledger.EnqueueOptions
		for _, id := range after {
			o.After = append(o.After, ledger.Key{Kind: "step", BizID: id})
		}
		k := ledger.Key{Kind: "step", BizID: bizID}
		if _, err := ledger.Enqueue(t.Context(), pool, k, nil, &o); err != nil {
			t.Fatal(err)
		}
		return k
	}
	ledgertest.ExecAsOwner(t, pool, `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, meta)
		values (1, 0, 0, 'scheduled', 'step', 'first',
		        '{"after":{"keys":[{"kind":"step","biz_id":"gone"}],"otherwise":"wait"}}')`)
	enqueue("left", "first")
	enqueue("right", "first")
	last := enqueue("last", "left", "right")
	var write func(n *projector.Node) string
	write = func(n *projector.Node) string {
		text := string(n.BizID)
		if n.State == "" {
			text += "?"
		}
		for _, p := range n.After {
			text += "(" + write(p) + ")"
		}
		if n.MoreAfter > 0 {
			text += fmt.Sprintf("+%d", n.MoreAfter)
		}
		return text
	}
	for depth, want := range map[int]string{
		1: "last(left+1)(right+1)", 2: "last(left(first+1))(right(first))",
		0: "last(left(first(gone?)))(right(first))",
	} {
		tree, err := projector.ReadTree(t.Context(), pool, last, projector.TreeLimits{Depth: depth})
		if err != nil {
			t.Fatal(err)
		}
		if got := write(tree.Task); got != want {
			t.Errorf("depth %d: got %s, want %s", depth, got, want)
		}
	}
}
