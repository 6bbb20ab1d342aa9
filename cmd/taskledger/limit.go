package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger"
)

// limit contains the limits of a kind as JSON. A kind has one of them or both.
type limit struct {
	Kind ledger.Kind `json:"kind"`
	*overloadLimit
	*concurrencyLimit
}

// overloadLimit is the limit of waiting tasks.
type overloadLimit struct {
	MaxWaiting   int64                 `json:"max_waiting"`
	Policy       ledger.OverloadPolicy `json:"policy"`
	RetryAfterMS int64                 `json:"retry_after_ms"`
}

// concurrencyLimit is the limit of running tasks.
type concurrencyLimit struct {
	MaxRunning int `json:"max_running"`
}

// usedLimit contains the limits of a kind with their use.
type usedLimit struct {
	limit
	Waiting int64 `json:"waiting"`
	Running *int  `json:"running,omitempty"` // with a concurrency limit
}

func overloadOf(l ledger.Limit) *overloadLimit {
	return &overloadLimit{l.MaxWaiting, l.Policy, l.RetryAfter.Milliseconds()}
}

// readLimits returns at most n kinds with limits, of the first after a kind, ordered by kind.
func readLimits(ctx context.Context, db ledger.DB, after ledger.Kind, n int) ([]usedLimit, error) {
	waiting, err := ledger.ReadLimits(ctx, db, after, n)
	if err != nil {
		return nil, err
	}
	running, err := ledger.ReadConcurrency(ctx, db, after, n)
	if err != nil {
		return nil, err
	}
	byKind := make(map[ledger.Kind]usedLimit)
	for _, l := range waiting {
		byKind[l.Kind] = usedLimit{limit: limit{Kind: l.Kind, overloadLimit: overloadOf(l.Limit)}, Waiting: l.Waiting}
	}
	for _, l := range running {
		u := byKind[l.Kind]
		u.Kind, u.Waiting, u.Running = l.Kind, l.Waiting, &l.Running
		u.concurrencyLimit = &concurrencyLimit{l.MaxRunning}
		byKind[l.Kind] = u
	}
	all := slices.SortedFunc(maps.Values(byKind), func(a, b usedLimit) int { return cmp.Compare(a.Kind, b.Kind) })
	return all[:min(n, len(all))], nil
}

// row returns the row of a table.
func (u usedLimit) row() table.Row {
	r := table.Row{u.Kind, count(u.Waiting), "", "", "", "", ""}
	if l := u.overloadLimit; l != nil {
		r[2], r[3], r[4] = count(l.MaxWaiting), l.Policy, time.Duration(l.RetryAfterMS)*time.Millisecond
	}
	if l := u.concurrencyLimit; l != nil {
		r[5], r[6] = count(int64(*u.Running)), count(int64(l.MaxRunning))
	}
	return r
}

func listLimits(ctx context.Context, a *app, pool *pgxpool.Pool, f showFlags) error {
	all, next, err := readPage(ctx, pool, f.pageFlags, readLimits, func(u usedLimit) ledger.Kind { return u.Kind })
	if err != nil {
		return err
	}
	if err := printList(a, struct {
		Limits []usedLimit `json:"limits"`
		Next   ledger.Kind `json:"next,omitempty"`
	}{all, next}, all, func(w io.Writer) {
		if len(all) == 0 {
			return
		}
		header := []any{"kind", "waiting", "at most", "policy", "retry after", "running", "concurrency"}
		t := newTable(header, 2, 3, 5, 6, 7)
		for _, l := range all {
			t.AppendRow(l.row())
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
	var policy, actor, concurrency string
	cmd := &cobra.Command{
		Use:   "limit KIND [MAX_WAITING]",
		Short: "Limit how many tasks of a kind may wait, and how many may run",
		Long: `Limit how many tasks of a kind may run at a time, over all workers, with --concurrency.
A lower limit than before takes effect when enough tasks have ended. See docs/concurrency.md.

Limit how many tasks of a kind may wait, for all producers. Above the limit the policy decides:

  reject          the enqueue fails
  discard         the enqueue succeeds, and the task is discarded at once
  discard_oldest  the enqueue succeeds, and the tasks that have waited longest are discarded
  caller_runs     the producer runs the handler (workers.Caller in Go; otherwise the enqueue fails)

The limit counts the tasks that the projector has counted: for a task that is due later, also the
scheduled ones. See docs/overload.md.`,
		Example: "  taskledger limit coupon.send 100000\n" +
			"  taskledger limit price.refresh 50 --policy discard_oldest\n" +
			"  taskledger limit partner.call --concurrency 5\n" +
			"  taskledger limit partner.call --concurrency none",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usagef("%s takes KIND and, at most, MAX_WAITING", cmd.CommandPath()).
					hinted("usage: %s", cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			l.Kind, l.Policy = ledger.Kind(args[0]), ledger.OverloadPolicy(policy)
			isWaiting := len(args) == 2
			if !isWaiting && concurrency == "" {
				return usagef("%s needs MAX_WAITING, --concurrency or both", cmd.CommandPath()).
					hinted("usage: %s", cmd.UseLine())
			}
			if !isWaiting && (cmd.Flags().Changed("policy") || cmd.Flags().Changed("retry-after")) {
				return usagef("--policy and --retry-after need MAX_WAITING").hinted("usage: %s", cmd.UseLine())
			}
			if isWaiting {
				var err error
				if l.MaxWaiting, err = strconv.ParseInt(args[1], 10, 64); err != nil {
					return &ledger.InvalidError{Field: "max_waiting", Value: args[1], Rule: "must be a number"}
				}
			}
			running := ledger.ConcurrencyLimit{Kind: l.Kind}
			if concurrency != "" && concurrency != "none" {
				var err error
				if running.MaxRunning, err = strconv.Atoi(concurrency); err != nil {
					return &ledger.InvalidError{
						Field: "concurrency", Value: concurrency, Rule: "must be a number, or none",
					}
				}
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				answer := limit{Kind: l.Kind}
				var text string
				err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
					if isWaiting {
						answer.overloadLimit, text = overloadOf(l), fmt.Sprintf(
							"at most %d tasks of kind %s may wait (%s)\n", l.MaxWaiting, l.Kind, l.Policy)
						if err := ledger.SetLimit(ctx, tx, l, actorOr(actor)); err != nil {
							return err
						}
					}
					switch concurrency {
					case "":
					case "none":
						text += fmt.Sprintf("any number of tasks of kind %s may run\n", plain(string(l.Kind)))
						_, err = ledger.RemoveConcurrency(ctx, tx, l.Kind)
					default:
						answer.concurrencyLimit = &concurrencyLimit{running.MaxRunning}
						text += fmt.Sprintf(
							"at most %d tasks of kind %s may run at a time\n", running.MaxRunning, l.Kind)
						err = ledger.SetConcurrency(ctx, tx, running, actorOr(actor))
					}
					return err
				})
				if err != nil {
					return err
				}
				if err := a.noteUnknownKind(ctx, pool, l.Kind); err != nil {
					return err
				}
				return a.print(answer, func(w io.Writer) { _, _ = io.WriteString(w, text) })
			})
		},
	}
	cmd.Flags().StringVar(&concurrency, "concurrency", "",
		fmt.Sprintf("how many tasks may run at a time, 0 to %d; none: any number", ledger.MaxConcurrency))
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
