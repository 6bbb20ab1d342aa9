package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
)

// operation is a command that changes tasks: one by its key, or all that match a filter.
type operation struct {
	done string // past participle of the operation, for the output
	one  func(context.Context, *operator.Operator, ledger.Key, operator.Audit) (ledger.Event, error)
	all  func(context.Context, *operator.Operator, operator.Filter, operator.Audit,
		*operator.BulkOptions) (operator.BulkResult, error)
}

// operateFlags are the options of all operations.
type operateFlags struct {
	audit       operator.Audit
	dryRun      bool
	everything  bool
	kind, state string
	fingerprint string
	orderKey    string
	olderThan   time.Duration
	limit       int
}

func newReleaseCommand(a *app) *cobra.Command {
	return newOperateCommand(a, &cobra.Command{
		Use:   "release [KIND BIZ_ID]",
		Short: "Make finished or waiting tasks available again",
		Long: `Make a task available again, or all tasks that the filters match. Without --state, filters match dead
tasks only. A dead task gets all its attempts again. A task that waits for a time or a retry is
released early.`,
		Example: "  taskledger release coupon.send order-17 --reason 'partner is back'\n" +
			"  taskledger release --fingerprint 77e2e2705ea532c6 --dry-run\n" +
			"  taskledger release --kind coupon.send --state retrying",
	}, operation{
		done: "released",
		one: func(ctx context.Context, o *operator.Operator, k ledger.Key, audit operator.Audit) (ledger.Event, error) {
			return o.Release(ctx, k, audit)
		},
		all: func(ctx context.Context, o *operator.Operator, f operator.Filter, audit operator.Audit,
			b *operator.BulkOptions) (operator.BulkResult, error) {
			return o.ReleaseAll(ctx, f, audit, b)
		},
	})
}

func newBuryCommand(a *app) *cobra.Command {
	return newOperateCommand(a, &cobra.Command{
		Use:   "bury [KIND BIZ_ID]",
		Short: "Make unfinished tasks dead, until they are released",
		Long: `Make an unfinished task dead, or all tasks that the filters match. No worker runs a dead task until
it is released. A running handler is cancelled, and its transaction is rolled back.`,
		Example: "  taskledger bury coupon.send order-17 --reason 'order is wrong'\n" +
			"  taskledger bury --kind coupon.send --state retrying",
	}, operation{
		done: "buried",
		one: func(ctx context.Context, o *operator.Operator, k ledger.Key, audit operator.Audit) (ledger.Event, error) {
			return o.Bury(ctx, k, audit)
		},
		all: func(ctx context.Context, o *operator.Operator, f operator.Filter, audit operator.Audit,
			b *operator.BulkOptions) (operator.BulkResult, error) {
			return o.BuryAll(ctx, f, audit, b)
		},
	})
}

func newCancelCommand(a *app) *cobra.Command {
	return newOperateCommand(a, &cobra.Command{
		Use:   "cancel [KIND BIZ_ID]",
		Short: "Cancel unfinished tasks",
		Long: `Cancel an unfinished task, or all tasks that the filters match. A running handler is cancelled, and
its transaction is rolled back. If the handler finishes first, the task succeeds, and the exit code
is 4 (conflict).`,
		Example: "  taskledger cancel coupon.send order-17 --reason 'order withdrawn'\n" +
			"  taskledger cancel --kind report.make --state scheduled --older-than 720h",
	}, operation{
		done: "cancelled",
		one: func(ctx context.Context, o *operator.Operator, k ledger.Key, audit operator.Audit) (ledger.Event, error) {
			return o.Cancel(ctx, k, audit)
		},
		all: func(ctx context.Context, o *operator.Operator, f operator.Filter, audit operator.Audit,
			b *operator.BulkOptions) (operator.BulkResult, error) {
			return o.CancelAll(ctx, f, audit, b)
		},
	})
}

func newRescheduleCommand(a *app) *cobra.Command {
	var due ledger.Due
	var at string
	var priority int
	cmd := newOperateCommand(a, &cobra.Command{
		Use:   "reschedule [KIND BIZ_ID]",
		Short: "Change the time or the priority of waiting or available tasks",
		Long: `Change the time at which a task runs, or at which all tasks that match the filters run. The state of a
task must be scheduled, retrying or available. With a time in the past the task runs at once.

--priority alone changes the priority of a task, and of all available tasks that the filters match.
An available task is then behind the tasks that have waited with that priority.`,
		Example: "  taskledger reschedule coupon.send order-17 --at 2026-12-24T18:00:00Z\n" +
			"  taskledger reschedule --kind coupon.send --state retrying --in 1h\n" +
			"  taskledger reschedule coupon.send order-17 --priority 1",
		PreRunE: func(*cobra.Command, []string) (err error) {
			due.Priority = ledger.Priority(priority)
			if at != "" {
				due.At, err = parseTime("at", at)
			}
			return err
		},
	}, operation{
		done: "rescheduled",
		one: func(ctx context.Context, o *operator.Operator, k ledger.Key, audit operator.Audit) (ledger.Event, error) {
			return o.Reschedule(ctx, k, due, audit)
		},
		all: func(ctx context.Context, o *operator.Operator, f operator.Filter, audit operator.Audit,
			b *operator.BulkOptions) (operator.BulkResult, error) {
			return o.RescheduleAll(ctx, f, due, audit, b)
		},
	})
	cmd.Flags().StringVar(&at, "at", "", "new `time`, in the format of RFC 3339")
	addDuration(cmd.Flags(), &due.In, "in", "new time, as a delay from now")
	addPriorityFlag(cmd, &priority, "new priority, 1 (urgent) to 4 (low) (default: the task keeps its own)")
	refuseZero(cmd.Flags(), "priority")
	return cmd
}

// newOperateCommand adds the options of all operations to a command.
func newOperateCommand(a *app, cmd *cobra.Command, o operation) *cobra.Command {
	var f operateFlags
	cmd.Args = cobra.MaximumNArgs(2)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.audit.Actor = actorOr(f.audit.Actor)
		if len(args) == 0 {
			return a.operateAll(cmd.Context(), o, f)
		}
		key, err := parseKey(args)
		switch {
		case err != nil:
			return usagef("%s", err).hinted("usage: %s", cmd.UseLine())
		case f.dryRun || f.everything || f.filter() != (operator.Filter{}):
			return usagef("name a task, or filters, and not both").
				hinted("show a task with: taskledger show task %s", key)
		}
		return a.operateOne(cmd.Context(), o, key, f.audit)
	}
	addActorFlag(cmd, &f.audit.Actor)
	cmd.Flags().StringVar(&f.audit.Reason, "reason", "", "reason, for the history of the task")
	cmd.Flags().StringVar(&f.kind, "kind", "", "all tasks of this kind")
	cmd.Flags().StringVar(&f.state, "state", "", "all tasks in this state")
	if o.done == "released" {
		cmd.Flags().StringVar(&f.fingerprint, "fingerprint", "",
			"all dead tasks with this error, see taskledger show dead")
		refuseZero(cmd.Flags(), "fingerprint")
	}
	cmd.Flags().StringVar(&f.orderKey, "order-key", "", "all tasks of this line, in its order")
	addDuration(cmd.Flags(), &f.olderThan, "older-than", "all tasks without an event for this time")
	cmd.Flags().IntVar(&f.limit, "limit", 0, "maximum number of tasks (default: all)")
	cmd.Flags().BoolVar(&f.everything, "all", false, "all tasks whose state permits the operation, without a filter")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "print the number of tasks, and change nothing")
	refuseZero(cmd.Flags(), "kind", "state", "order-key", "older-than", "limit")
	return cmd
}

func (f operateFlags) filter() operator.Filter {
	return operator.Filter{
		Kind: ledger.Kind(f.kind), State: ledger.State(f.state), Fingerprint: f.fingerprint, OlderThan: f.olderThan,
		OrderKey: f.orderKey, Limit: f.limit,
	}
}
