package projector

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/tree_children.sql
var treeChildrenSQL string

//go:embed sql/tree_successors.sql
var treeSuccessorsSQL string

// Node is a task in a [Tree].
type Node struct {
	ledger.Key
	State      ledger.State   `json:"state,omitempty"` // "": the task is not in the ledger
	Attempt    ledger.Attempt `json:"attempt"`
	EnqueuedAt time.Time      `json:"enqueued_at,omitzero"`
	UpdatedAt  time.Time      `json:"updated_at,omitzero"`
	Children   []*Node        `json:"children,omitempty"` // the tasks it caused, by key
	More       bool           `json:"more,omitempty"`     // there are, or may be, more of these

	// After contains the predecessors ([ledger.EnqueueOptions]) of the task of a [Tree], and their predecessors.
	After     []*Node `json:"after,omitempty"`
	MoreAfter int     `json:"more_after,omitempty"` // the number of its other predecessors

	// Before contains the tasks that wait for the task of a [Tree], by key: it is one of their predecessors, and they
	// are not available yet. MoreBefore reports that there are, or may be, more.
	Before     []*Node `json:"before,omitempty"`
	MoreBefore bool    `json:"more_before,omitempty"`
}

// Tree is a task with its causes, its predecessors, the tasks that wait for it and the tasks that it caused.
type Tree struct {
	Causes     []Node `json:"causes"`                // the task's cause, the cause of that, and so on
	MoreCauses bool   `json:"more_causes,omitempty"` // the last of Causes was caused, too
	Task       *Node  `json:"task"`
}

// TreeLimits bounds a [Tree].
type TreeLimits struct {
	Depth   int // generations, both up and down: 1 to 100. Default: 10.
	Breadth int // tasks that one task caused, its predecessors, and waiting tasks: 1 to 1000. Default: 50.
	Tasks   int // in the whole tree: 1 to 10,000. Default: 1000.
}

func (l *TreeLimits) complete() error {
	for _, limit := range []struct {
		field           string
		n               *int
		most, otherwise int
	}{{"depth", &l.Depth, 100, 10}, {"breadth", &l.Breadth, 1000, 50}, {"tasks", &l.Tasks, 10_000, 1000}} {
		if *limit.n == 0 {
			*limit.n = limit.otherwise
		}
		if *limit.n < 1 || *limit.n > limit.most {
			return &ledger.InvalidError{Field: limit.field, Value: fmt.Sprint(*limit.n),
				Rule: fmt.Sprintf("must be between 1 and %d", limit.most)}
		}
	}
	return nil
}

// ReadTree returns the tasks that a task has caused, by the causes in their metas ([ledger.WithCause]). It also returns
// the causes of the task, the tasks after which it becomes available, and the tasks that wait for it. It executes one
// small statement for each generation, and one for each cause and predecessor. The cost grows with the returned tasks
// and with the events of tasks that are read from the ledger. It also searches at most 5,000 waiting tasks for tasks
// that wait for the task.
//
// The task, its causes, its predecessors and the tasks that wait for it are read from the ledger, the others from the
// projection. Tasks that are not projected yet are left out; see [WaitFor]. A task is in a tree once, even if its
// causes form a cycle; as a predecessor of several tasks it is below each of them, with its own predecessors below the
// first.
//
// Errors: [*ledger.InvalidError], [ledger.ErrUnknownTask], [ledger.ErrNotMigrated].
func ReadTree(ctx context.Context, db ledger.DB, k ledger.Key, l TreeLimits) (Tree, error) {
	if err := errors.Join(l.complete(), k.ValidateStored()); err != nil {
		return Tree{}, fmt.Errorf("task tree: %w", err)
	}
	task, err := ledger.Load(ctx, db, k)
	if err != nil {
		return Tree{}, err
	}
	t := tree{db: db, limits: l, seen: map[ledger.Key]bool{k: true}}
	causes, moreCauses, err := t.causes(ctx, task.Cause)
	if err != nil {
		return Tree{}, err
	}
	root := nodeOf(task)
	for generation, depth := []*Node{&root}, 1; len(generation) > 0; depth++ {
		if generation, err = t.descend(ctx, generation, depth > l.Depth); err != nil {
			return Tree{}, err
		}
	}
	room, err := t.predecessors(ctx, &root, task.After)
	if err != nil {
		return Tree{}, err
	}
	if err := t.successors(ctx, &root, room); err != nil {
		return Tree{}, err
	}
	return Tree{Causes: causes, MoreCauses: moreCauses, Task: &root}, nil
}

func nodeOf(t ledger.Task) Node {
	return Node{Key: t.Key, State: t.State, Attempt: t.Attempt, EnqueuedAt: t.EnqueuedAt, UpdatedAt: t.UpdatedAt}
}

// tree is the state of one ReadTree.
type tree struct {
	db     ledger.DB
	limits TreeLimits
	seen   map[ledger.Key]bool // the tasks in it, causes included
}

// causes returns the causes of a task, the nearest first, and whether Depth has cut the list.
// The last one may be a task that is not in the ledger.
func (t *tree) causes(ctx context.Context, k ledger.Key) (causes []Node, hasMore bool, err error) {
	causes = []Node{}
	for k != (ledger.Key{}) && !t.seen[k] {
		if len(causes) == t.limits.Depth {
			return causes, true, nil
		}
		t.seen[k] = true
		task, err := ledger.Load(ctx, t.db, k)
		switch {
		case errors.Is(err, ledger.ErrUnknownTask):
			return append(causes, Node{Key: k}), false, nil
		case err != nil:
			return nil, false, err
		}
		causes = append(causes, nodeOf(task))
		k = task.Cause
	}
	return causes, false, nil
}

// predecessors adds the predecessors of the root, their predecessors, and so on. A predecessor that is not in the
// ledger knows no state. It returns how many more tasks fit into the tree.
func (t *tree) predecessors(ctx context.Context, root *Node, after []ledger.Key) (room int, err error) {
	type waiting struct {
		node  *Node
		after []ledger.Key
	}
	room = t.limits.Tasks - len(t.seen)
	isBelow := map[ledger.Key]bool{root.Key: true}
	generation := []waiting{{root, after}}
	for depth := 1; len(generation) > 0; depth++ {
		var next []waiting
		for _, w := range generation {
			shown := max(0, min(len(w.after), t.limits.Breadth, room))
			if depth > t.limits.Depth {
				shown = 0
			}
			room -= shown
			w.node.MoreAfter = len(w.after) - shown
			for _, k := range w.after[:shown] {
				task, err := ledger.Load(ctx, t.db, k)
				if err != nil && !errors.Is(err, ledger.ErrUnknownTask) {
					return 0, err
				}
				n := nodeOf(task)
				n.Key = k
				w.node.After = append(w.node.After, &n)
				if len(task.After) > 0 && !isBelow[k] {
					isBelow[k] = true
					next = append(next, waiting{&n, task.After})
				}
			}
		}
		generation = next
	}
	return room, nil
}

// maxWaiting is how many waiting tasks a tree searches, because no index contains the predecessors of tasks.
const maxWaiting = 5000

// successors adds the tasks that wait for the root.
func (t *tree) successors(ctx context.Context, root *Node, room int) error {
	most := max(0, min(t.limits.Breadth, room))
	rows, err := t.db.Query(ctx, treeSuccessorsSQL, string(root.Kind), string(root.BizID), int64(maxWaiting+1),
		int64(most+1))
	if err != nil {
		return pgerr.Explain("task tree", err)
	}
	var searched int
	var kind, id *string
	var keys []ledger.Key
	if _, err := pgx.ForEachRow(rows, []any{&searched, &kind, &id}, func() error {
		if kind != nil {
			keys = append(keys, ledger.Key{Kind: ledger.Kind(*kind), BizID: ledger.BizID(*id)})
		}
		return nil
	}); err != nil {
		return pgerr.Explain("task tree", err)
	}
	root.MoreBefore = len(keys) > most || searched > maxWaiting
	for _, k := range keys[:min(most, len(keys))] {
		task, err := ledger.Load(ctx, t.db, k)
		if err != nil {
			return err
		}
		n := nodeOf(task)
		root.Before = append(root.Before, &n)
	}
	return nil
}

// descend reads and returns the tasks that a generation has caused. If tooDeep is set, it only records
// whether there are any.
func (t *tree) descend(ctx context.Context, parents []*Node, tooDeep bool) ([]*Node, error) {
	breadth, room := t.limits.Breadth, t.limits.Tasks-len(t.seen)
	if tooDeep || room <= 0 {
		breadth, room = 0, 0
	}
	var causes pgarray.Builder
	for _, p := range parents {
		causes.Add(p.Key.String())
	}
	all := len(parents) * (breadth + 1)
	most := all
	if room > 0 {
		most = min(all, room+1)
	}
	rows, err := t.db.Query(ctx, treeChildrenSQL, causes.String(), int64(breadth+1), int64(most))
	if err != nil {
		return nil, pgerr.Explain("task tree", err)
	}
	defer rows.Close()
	var next []*Node
	read, last := 0, 0
	ofParent := make([]int, len(parents)) // rows read of each parent
	for ; rows.Next(); read++ {
		var c Node
		if err := rows.Scan(&last, (*string)(&c.Kind), (*string)(&c.BizID), (*string)(&c.State), (*int32)(&c.Attempt),
			pgquery.Micros(&c.EnqueuedAt), pgquery.Micros(&c.UpdatedAt)); err != nil {
			return nil, pgerr.Explain("task tree", err)
		}
		p := parents[last]
		ofParent[last]++
		switch {
		case ofParent[last] > breadth:
			p.More = true
		case t.seen[c.Key]:
		case len(next) >= room:
			p.More = true
		default:
			t.seen[c.Key] = true
			c.EnqueuedAt, c.UpdatedAt = c.EnqueuedAt.UTC(), c.UpdatedAt.UTC()
			p.Children, next = append(p.Children, &c), append(next, &c)
		}
	}
	if read == most && most < all { // there may be more, which were not read
		for _, p := range parents[last:] {
			p.More = true
		}
	}
	return next, pgerr.Explain("task tree", rows.Err())
}
