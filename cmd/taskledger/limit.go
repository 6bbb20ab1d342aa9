package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger"
)

// limit is a limit as JSON.
type limit struct {
	ledger.Limit
	RetryAfterMS int64 `json:"retry_after_ms"`
}

// usedLimit is a limit with its use.
type usedLimit struct {
	limit
	Waiting int64 `json:"waiting"`
}

func listLimits(ctx context.Context, a *app, pool *pgxpool.Pool, f showFlags) error {
	found, next, err := readPage(ctx, pool, f.pageFlags, ledger.ReadLimits,
		func(l ledger.LimitStatus) ledger.Kind { return l.Kind })
	if err != nil {
		return err
	}
	all := make([]usedLimit, len(found))
	for i, l := range found {
		all[i] = usedLimit{limit{l.Limit, l.RetryAfter.Milliseconds()}, l.Waiting}
	}
	if err := printList(a, struct {
		Limits []usedLimit `json:"limits"`
		Next   ledger.Kind `json:"next,omitempty"`
	}{all, next}, all, func(w io.Writer) {
		if len(all) == 0 {
			return
		}
		t := newTable([]any{"kind", "waiting", "at most", "policy", "retry after"}, 2, 3, 5)
		for _, l := range all {
			t.AppendRow(table.Row{l.Kind, count(l.Waiting), count(l.MaxWaiting), l.Policy, l.RetryAfter})
		}
		renderTable(w, t)
	}); err != nil {
		return err
	}
	if len(all) == 0 {
		fmt.Fprintln(a.stderr, "no limits")
		return nil
	}
	noteNext(a, next)
	return noteLag(ctx, a, pool)
}

func newLimitCommand(a *app) *cobra.Command {
	var l ledger.Limit
	var policy, actor string
	cmd := &cobra.Command{
		Use:   "limit KIND MAX_WAITING",
		Short: "Limit how many tasks of a kind may wait",
		Long: `Limit how many tasks of a kind may wait, for all producers. Above the limit the policy decides:

  reject          the enqueue fails
  discard         the enqueue succeeds, and the task is discarded at once
  discard_oldest  the enqueue succeeds, and the tasks that have waited longest are discarded
  caller_runs     the producer runs the handler (workers.Caller in Go; otherwise the enqueue fails)

The limit counts the tasks that the projector has counted. It does not apply to tasks that are due
later. See docs/overload.md.`,
		Example: "  taskledger limit coupon.send 100000\n" +
			"  taskledger limit price.refresh 50 --policy discard_oldest",
		Args: exactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			l.Kind, l.Policy = ledger.Kind(args[0]), ledger.OverloadPolicy(policy)
			var err error
			if l.MaxWaiting, err = strconv.ParseInt(args[1], 10, 64); err != nil {
				return &ledger.InvalidError{Field: "max_waiting", Value: args[1], Rule: "must be a number"}
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				if err := ledger.SetLimit(ctx, pool, l, actorOr(actor)); err != nil {
					return err
				}
				return a.print(limit{l, l.RetryAfter.Milliseconds()}, func(w io.Writer) {
					fmt.Fprintf(w, "at most %d tasks of kind %s may wait (%s)\n", l.MaxWaiting, l.Kind, l.Policy)
				})
			})
		},
	}
	cmd.Flags().StringVar(&policy, "policy", string(ledger.Reject), "reject, discard, discard_oldest or caller_runs")
	policies := []string{string(ledger.Reject), string(ledger.Discard), string(ledger.DiscardOldest),
		string(ledger.CallerRuns)}
	_ = cmd.RegisterFlagCompletionFunc("policy",
		cobra.FixedCompletions(policies, cobra.ShellCompDirectiveNoFileComp)) // the flag exists, and has one completion
	l.RetryAfter = time.Second
	addDuration(cmd.Flags(), &l.RetryAfter, "retry-after",
		"delay after which a rejected producer should retry, as a hint")
	refuseZero(cmd.Flags(), "policy", "retry-after")
	addActorFlag(cmd, &actor)
	return cmd
}
