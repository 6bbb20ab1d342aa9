package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
)

// withOperator calls f with an operator.
func (a *app) withOperator(ctx context.Context, do func(*operator.Operator, *pgxpool.Pool) error) error {
	return a.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		err := do(operator.New(pool), pool)
		if err == nil {
			a.wake(ctx, pool)
		}
		return err
	})
}

// operateOne executes an operation on one task.
func (a *app) operateOne(ctx context.Context, o operation, key ledger.Key, audit operator.Audit) error {
	return a.withOperator(ctx, func(op *operator.Operator, _ *pgxpool.Pool) error {
		e, err := o.one(ctx, op, key, audit)
		if err != nil {
			return unknownTask(err, key)
		}
		return a.print(e, func(w io.Writer) {
			text := fmt.Sprintf("%s %s", o.done, plain(key.String()))
			if due := e.DueAt(); !due.IsZero() {
				text += " to " + due.Format(time.RFC3339)
			}
			fmt.Fprintln(w, text)
		})
	})
}

// bulkResult is the result of an operation on many tasks, as JSON.
type bulkResult struct {
	operator.BulkResult
	DryRun bool `json:"dry_run"`
}

// operateAll executes an operation on all tasks that the filters match.
func (a *app) operateAll(ctx context.Context, o operation, f operateFlags) error {
	filter := f.filter()
	narrow := filter
	narrow.Limit = 0
	switch named := narrow != (operator.Filter{}); {
	case !named && !f.everything:
		return usagef("name a task, or filters").hinted("add KIND BIZ_ID, or a filter such as --kind, or --all")
	case named && f.everything:
		return usagef("--all excludes other filters")
	}
	return a.withOperator(ctx, func(op *operator.Operator, pool *pgxpool.Pool) error {
		result, err := o.all(ctx, op, filter, f.audit, &operator.BulkOptions{DryRun: true})
		if err == nil && !f.dryRun {
			show, stop := a.progress(o.done, int64(result.Found))
			result, err = o.all(ctx, op, filter, f.audit, &operator.BulkOptions{
				Progress: func(t operator.BulkResult) { show(int64(t.Found)) },
			})
			stop()
		}
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			return failf(exitFailed, "interrupted: %s %s", count(int64(result.Done)), o.done).
				hinted("run it again for the rest")
		}
		if err != nil {
			return err
		}
		if result.Found == 0 && filter.Kind != "" {
			if err := a.noteUnknownKind(ctx, pool, filter.Kind); err != nil {
				return err
			}
		}
		if err := a.print(bulkResult{result, f.dryRun}, func(w io.Writer) {
			renderBulkResult(w, o.done, result, f.dryRun)
		}); err != nil {
			return err
		}
		return noteLag(ctx, a, pool)
	})
}

func renderBulkResult(w io.Writer, done string, t operator.BulkResult, dryRun bool) {
	switch {
	case dryRun:
		fmt.Fprintf(w, "would be %s: %s\n", done, count(int64(t.Found)))
	case t.Skipped > 0:
		fmt.Fprintf(w, "%s: %s; skipped, since they moved on, are locked or erased: %s\n", done, count(int64(t.Done)),
			count(int64(t.Skipped)))
	default:
		fmt.Fprintf(w, "%s: %s\n", done, count(int64(t.Done)))
	}
}
