package console

import (
	"fmt"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

// A graph has each task once, in a place of its own, and each edge leads to the right.
func TestGraphHasNoOverlap(t *testing.T) {
	t.Parallel()
	node := func(id string, children ...*projector.Node) *projector.Node {
		return &projector.Node{Key: ledger.Key{Kind: "k", BizID: ledger.BizID(id)}, State: ledger.StateSucceeded,
			Children: children}
	}
	root := node("root", node("a", node("a1"), node("a2", node("a21"))), node("b"))
	for i := range 60 {
		root.Children = append(root.Children, node(fmt.Sprintf("many-%d", i)))
	}
	root.Before = []*projector.Node{node("waits")}
	needed := node("needed")
	needed.After = []*projector.Node{node("first"), node("second")}
	root.After = []*projector.Node{needed, node("other")}
	tree := projector.Tree{Task: root, Causes: []projector.Node{*node("cause"), *node("cause of the cause")}}
	g := newGraph(tree)
	if want := 1 + 5 + 60 + 1 + 4 + 2; len(g.Boxes) != want || len(g.Edges) != want-1 {
		t.Errorf("%d boxes and %d edges, want %d boxes", len(g.Boxes), len(g.Edges), want)
	}
	for i, a := range g.Boxes {
		for _, b := range g.Boxes[:i] {
			if a.X < b.X+boxWidth && b.X < a.X+boxWidth && a.Y < b.Y+boxHeight && b.Y < a.Y+boxHeight {
				t.Errorf("%s at %d, %d is over %s at %d, %d", a.BizID, a.X, a.Y, b.BizID, b.X, b.Y)
			}
		}
		if a.X < 0 || a.Y < 0 || a.X+boxWidth > g.Width || a.Y+boxHeight > g.Height {
			t.Errorf("%s is outside", a.BizID)
		}
	}
	for _, e := range g.Edges {
		if e.X1 >= e.X2 {
			t.Errorf("an edge from %s to %s leads to the left", e.from.BizID, e.to.BizID)
		}
	}
	if alone := newGraph(projector.Tree{Task: node("alone")}); len(alone.Boxes) != 1 || alone.Width < boxWidth {
		t.Errorf("a task alone: %+v", alone)
	}
}
