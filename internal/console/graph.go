package console

import (
	"html/template"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

// The measures of a graph, in pixels.
const (
	boxWidth  = 196
	boxHeight = 56
	boxGapX   = 44
	boxGapY   = 12
	// maxBoxText is the number of characters of a line in a box.
	maxBoxText = 25
)

// graph is a task with its causes and predecessors to the left, and the tasks that it caused or that wait for it to
// the right.
type graph struct {
	Width, Height int
	Boxes         []*box
	Edges         []edge
}

// box is a task in a graph.
type box struct {
	X, Y        int
	Kind, BizID string
	State       ledger.State
	Path        template.URL
	IsRoot      bool

	column, row float64
}

// edge leads from a cause or a predecessor to a task.
type edge struct {
	X1, Y1, X2, Y2, Middle int
	IsWait                 bool // the task waits for its predecessor

	from, to *box
}

// newGraph returns the graph of a tree.
func newGraph(t projector.Tree) *graph {
	g := &graph{}
	root := g.box(t.Task, 0)
	root.IsRoot = true
	var right, left []*box
	rows := 0.0
	for _, n := range t.Task.Children {
		right = append(right, g.place(n, root, 1, &rows, false))
	}
	for _, n := range t.Task.Before {
		right = append(right, g.place(n, root, 1, &rows, true))
	}
	first := len(g.Boxes)
	rows = 0
	if len(t.Causes) > 0 { // the nearest one first
		to := root
		for i := range t.Causes {
			b := g.box(&t.Causes[i], float64(-i-1))
			g.Edges = append(g.Edges, edge{from: b, to: to})
			if i == 0 {
				left = append(left, b)
			}
			to = b
		}
		rows++
	}
	for _, n := range t.Task.After {
		left = append(left, g.place(n, root, -1, &rows, true))
	}
	root.row = middle(right)
	shift := root.row - middle(left)
	for _, b := range g.Boxes[first:] {
		b.row += shift
	}
	g.measure()
	return g
}

// place adds a task and the tasks beyond it, which are to the right of it if column is positive.
func (g *graph) place(n *projector.Node, from *box, column float64, rows *float64, isWait bool) *box {
	b := g.box(n, column)
	e := edge{from: from, to: b, IsWait: isWait}
	beyond, step := n.Children, 1.0
	if column < 0 {
		e.from, e.to, beyond, step = b, from, n.After, -1
	}
	g.Edges = append(g.Edges, e)
	var others []*box
	for _, o := range beyond {
		others = append(others, g.place(o, b, column+step, rows, isWait))
	}
	if len(others) == 0 {
		b.row = *rows
		*rows++
	} else {
		b.row = middle(others)
	}
	return b
}

func (g *graph) box(n *projector.Node, column float64) *box {
	b := &box{Kind: printable.Short(string(n.Kind), maxBoxText), BizID: printable.Short(string(n.BizID), maxBoxText),
		State: n.State, Path: taskPath(n.Key), column: column}
	g.Boxes = append(g.Boxes, b)
	return b
}

// middle returns the row in the middle of boxes, 0 of none.
func middle(all []*box) float64 {
	if len(all) == 0 {
		return 0
	}
	return (all[0].row + all[len(all)-1].row) / 2
}

// measure sets the places of boxes and edges in pixels.
func (g *graph) measure() {
	column, row := 0.0, 0.0
	for _, b := range g.Boxes {
		column, row = min(column, b.column), min(row, b.row)
	}
	for _, b := range g.Boxes {
		b.X = int((b.column-column)*(boxWidth+boxGapX)) + 1
		b.Y = int((b.row-row)*(boxHeight+boxGapY)) + 1
		g.Width, g.Height = max(g.Width, b.X+boxWidth+1), max(g.Height, b.Y+boxHeight+1)
	}
	for i := range g.Edges {
		e := &g.Edges[i]
		e.X1, e.Y1 = e.from.X+boxWidth, e.from.Y+boxHeight/2
		e.X2, e.Y2 = e.to.X, e.to.Y+boxHeight/2
		e.Middle = (e.X1 + e.X2) / 2
	}
}
