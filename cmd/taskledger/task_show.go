package main

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger"
)

func newTaskShowCommand(a *app) *cobra.Command {
	var asOf when
	cmd := &cobra.Command{
		Use:   "show KIND BIZ_ID",
		Short: "Show the current state of a task",
		Long:  "Show the state of a task, now or in the past, from its events. It does not need a projector.",
		Example: "  taskledger task show coupon.send order-17\n  taskledger task show coupon.send/order-17 -o json\n" +
			"  taskledger task show coupon.send order-17 --as-of 2026-11-17T09:00:00Z",
		Args: keyArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := parseKey(args)
			if err != nil {
				return err
			}
			return showTask(cmd.Context(), a, key, asOf)
		},
	}
	cmd.Flags().Var(&asOf, "as-of", "the task as it was then (default: now)")
	return cmd
}

func showTask(ctx context.Context, a *app, key ledger.Key, asOf when) error {
	pool, err := a.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	moment, err := asOf.moment(ctx, pool)
	if err != nil {
		return err
	}
	task, err := ledger.LoadAsOf(ctx, pool, key, moment)
	if err != nil {
		return unknownTaskAsOf(ctx, pool, err, key, moment)
	}
	return printTask(a, task)
}

// printTask shows a task.
func printTask(a *app, task ledger.Task) error {
	return a.print(task, func(w io.Writer) {
		cause := ""
		if task.Cause != (ledger.Key{}) {
			cause = task.Cause.String()
		}
		fields := [][2]string{
			{"task", plain(task.Key.String())},
			{"state", string(task.State)},
			{"version", strconv.Itoa(int(task.Version))},
			{"attempt", strconv.Itoa(int(task.Attempt))},
			{"failures", strconv.Itoa(task.Failures)},
			{"shard", strconv.Itoa(int(task.Shard))},
			{"enqueued", task.EnqueuedAt.UTC().Format(time.RFC3339) + ", " + ago(task.EnqueuedAt)},
			{"updated", task.UpdatedAt.UTC().Format(time.RFC3339) + ", " + ago(task.UpdatedAt) + " by " +
				plain(task.Actor)},
		}
		for _, f := range []struct {
			name string
			at   time.Time
		}{{"due", task.DueAt}, {"start by", task.StartBy}, {"finish by", task.FinishBy}} {
			if !f.at.IsZero() {
				fields = append(fields, [2]string{f.name, f.at.Format(time.RFC3339)})
			}
		}
		args := "args"
		if task.ArgsEncoding != "" {
			args += " (" + task.ArgsEncoding + ")"
		}
		var after []string
		for _, k := range task.After {
			after = append(after, k.String())
		}
		for _, f := range [][2]string{
			{"led by", cause}, {"after", strings.Join(after, ", ")}, {"error", task.Error}, {"reason", task.Reason},
			{"fingerprint", task.Fingerprint},
			{args, string(task.Args)}, {"progress", string(task.Progress)}, {"result", string(task.Result)}} {
			if f[1] != "" {
				fields = append(fields, [2]string{f[0], plain(f[1])})
			}
		}
		renderFields(w, fields...)
	})
}

// unknownTask returns the error of a task that does not exist.
func unknownTask(err error, key ledger.Key) error {
	if f := describe(err); f.exit != exitNotFound {
		return err
	}
	if invalid := key.Kind.Validate(); invalid != nil {
		return invalid
	}
	return failf(exitNotFound, "task %s does not exist", key).
		hinted("%s", "list tasks with: taskledger task list --kind "+shellWord(string(key.Kind)))
}
