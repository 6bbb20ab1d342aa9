package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

func newTreeCommand(a *app) *cobra.Command {
	var limits projector.TreeLimits
	cmd := &cobra.Command{
		Use:   "tree KIND BIZ_ID",
		Short: "Show the tasks that a task has caused, and its causes",
		Long: `Show the tasks that a task's handler has enqueued, the tasks that these have caused, and so on. Above
them are the causes of the task itself and its predecessors, each with its own predecessors. Below them are the tasks
that wait for this one. All these and the task are read from the ledger, the other tasks from the projection.`,
		Example: "  taskledger tree order.place order-17\n" +
			"  taskledger tree order.place/order-17 --depth 2 -o json",
		Args: keyArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := parseKey(args)
			if err != nil {
				return err
			}
			return showTree(cmd.Context(), a, key, limits)
		},
	}
	cmd.Flags().IntVar(&limits.Depth, "depth", 10, "generations to show, up and down, 1 to 100")
	cmd.Flags().IntVar(&limits.Breadth, "breadth", 50,
		"maximum number of tasks below one task, of predecessors and of tasks that wait, 1 to 1000")
	cmd.Flags().IntVar(&limits.Tasks, "limit", 1000, "maximum number of tasks in all, 1 to 10000")
	refuseZero(cmd.Flags(), "depth", "breadth", "limit")
	return cmd
}

func showTree(ctx context.Context, a *app, key ledger.Key, limits projector.TreeLimits) error {
	pool, err := a.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	tree, err := projector.ReadTree(ctx, pool, key, limits)
	if err != nil {
		return unknownTask(err, key)
	}
	if err := a.print(tree, func(w io.Writer) { renderTree(w, tree) }); err != nil {
		return err
	}
	return noteLag(ctx, a, pool)
}

func renderTree(w io.Writer, tree projector.Tree) {
	t := newTable([]any{"task", "state", "attempt", "enqueued", "updated"}, 3, 4, 5)
	if tree.MoreCauses {
		t.AppendRow(table.Row{"led by … and more"})
	}
	for i := len(tree.Causes) - 1; i >= 0; i-- { // the first cause first
		appendNode(t, "led by ", &tree.Causes[i])
	}
	appendAfter(t, "", tree.Task)
	appendNode(t, "", tree.Task)
	appendChildren(t, "", tree.Task)
	for _, s := range tree.Task.Before {
		appendNode(t, "before ", s)
	}
	if tree.Task.MoreBefore {
		t.AppendRow(table.Row{"before … and more"})
	}
	renderTable(w, t)
}

func appendNode(t table.Writer, before string, n *projector.Node) {
	if n.State == "" {
		t.AppendRow(table.Row{before + plain(n.Key.String()), "unknown"})
		return
	}
	t.AppendRow(table.Row{before + plain(n.Key.String()), painted(n.State), n.Attempt, ago(n.EnqueuedAt),
		ago(n.UpdatedAt)})
}

// appendAfter appends the predecessors of a task, each with its own below it.
func appendAfter(t table.Writer, indent string, n *projector.Node) {
	for _, p := range n.After {
		appendNode(t, indent+"after ", p)
		appendAfter(t, indent+"  ", p)
	}
	if n.MoreAfter > 0 {
		t.AppendRow(table.Row{fmt.Sprintf("%safter … and %d more", indent, n.MoreAfter)})
	}
}

func appendChildren(t table.Writer, indent string, n *projector.Node) {
	for i, c := range n.Children {
		branch, below := "├─ ", "│  "
		if i == len(n.Children)-1 && !n.More {
			branch, below = "└─ ", "   "
		}
		appendNode(t, indent+branch, c)
		appendChildren(t, indent+below, c)
	}
	if n.More {
		t.AppendRow(table.Row{indent + "└─ … and more"})
	}
}
