package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

func newParkedCommand(a *app) *cobra.Command {
	return group(
		&cobra.Command{Use: "parked", Short: "List the events that could not be published, and retry or discard them"},
		newParkedListCommand(a),
		newParkedShowCommand(a),
		newParkedRetryCommand(a),
		newParkedDiscardCommand(a),
	)
}

func newParkedListCommand(a *app) *cobra.Command {
	var limit int
	var after int64
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the parked events, oldest first",
		Example: "  taskledger parked list\n  taskledger parked list -o json",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > maxPage {
				return usagef("--limit must be between 1 and %d, got %d", maxPage, limit)
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return listParked(ctx, a, pool, ledger.Position(after), limit)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, fmt.Sprintf("maximum number of events, 1 to %d", maxPage))
	cmd.Flags().Int64Var(&after, "after", 0, "begin after the event with this `position`")
	return cmd
}

func listParked(ctx context.Context, a *app, pool *pgxpool.Pool, after ledger.Position, limit int) error {
	all, next, err := cutPage(limit, func(limit int) ([]outbox.Parked, error) {
		return outbox.ReadParked(ctx, pool, after, limit)
	}, func(p outbox.Parked) ledger.Position { return p.Position })
	if err != nil {
		return err
	}
	list := struct {
		Parked []outbox.Parked `json:"parked"`
		Next   ledger.Position `json:"next,omitempty"`
	}{all, next}
	if err := printList(a, list, all, func(w io.Writer) {
		if len(all) == 0 {
			return
		}
		t := newTable([]any{"position", "task", "version", "parked", "reason"}, 1, 3, 4)
		for _, p := range all {
			t.AppendRow(table.Row{
				p.Position, plain(p.Key.String()), p.Version, ago(p.ParkedAt), shorten(p.Reason, 100),
			})
		}
		renderTable(w, t)
	}); err != nil {
		return err
	}
	switch {
	case len(all) == 0:
		fmt.Fprintln(a.stderr, "no parked events")
	case a.config.output == formatTable:
		fmt.Fprintln(a.stderr, outbox.ParkedCure)
	}
	noteNext(a, next)
	return nil
}

func newParkedShowCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "show POSITION",
		Short:   "Show a parked event and the whole reason",
		Example: "  taskledger parked show 4711",
		Args:    exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			positions, err := parsePositions(args)
			if err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				found, err := outbox.ReadParked(ctx, pool, positions[0]-1, 1)
				if err != nil {
					return err
				}
				if len(found) == 0 || found[0].Position != positions[0] {
					return notParked(fmt.Errorf("position %d: %w", positions[0], outbox.ErrNotParked))
				}
				return a.print(found[0], func(w io.Writer) { renderParked(w, found[0]) })
			})
		},
	}
}

func renderParked(w io.Writer, p outbox.Parked) {
	renderFields(w,
		[2]string{"position", strconv.FormatInt(int64(p.Position), 10)},
		[2]string{"task", plain(p.Key.String())},
		[2]string{"version", strconv.Itoa(int(p.Version))},
		[2]string{"parked", ago(p.ParkedAt)},
		[2]string{"reason", plain(p.Reason)},
		[2]string{"cure", parkedCure(p)},
	)
}

// parkedCure returns the commands that end the condition of a parked event.
func parkedCure(p outbox.Parked) string {
	cure := fmt.Sprintf("taskledger task cancel %s, unless the task has ended; then: taskledger parked discard %d",
		shellKey(p.Key), p.Position)
	if p.Key.Validate() == nil {
		cure = fmt.Sprintf("remove the reason, then: taskledger parked retry %d; or: %s", p.Position, cure)
	}
	return cure
}

func newParkedRetryCommand(a *app) *cobra.Command {
	return newUnparkCommand(a, &cobra.Command{
		Use:   "retry [POSITION...]",
		Short: "Let the relay publish parked events again",
		Long: `Let the relay publish parked events again, in the order of their positions. Remove the cause first, for
example a max_payload of the NATS server that is too small. An event that still cannot be published is parked
again. Subscribers may receive the event after later events of its task.`,
		Example: "  taskledger parked retry 4711 4712 --reason 'max_payload raised'\n  taskledger parked retry --all",
	}, "retried", outbox.RetryParked)
}

func newParkedDiscardCommand(a *app) *cobra.Command {
	return newUnparkCommand(a, &cobra.Command{
		Use:   "discard [POSITION...]",
		Short: "Remove parked events from the list; they are never published",
		Long: `Remove parked events from the list. They are never published, not even by taskledger stream rebuild, and
stay in the ledger. Their tasks do not change: workers begin the available ones. First cancel a task that must not run
(taskledger task cancel).`,
		Example: "  taskledger parked discard 4711 --reason 'written by mistake'",
	}, "discarded", outbox.DiscardParked)
}

// newUnparkCommand completes a command that removes parked events from the list. done is its past participle.
func newUnparkCommand(a *app, cmd *cobra.Command, done string,
	unpark func(context.Context, outbox.DB, []ledger.Position, string, string) error) *cobra.Command {
	var all, dryRun bool
	var actor, reason string
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if all == (len(args) > 0) {
			return usagef("name events by their positions, or --all").hinted("list them with: taskledger parked list")
		}
		positions, err := parsePositions(args)
		if err != nil {
			return err
		}
		return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
			act := func(p []ledger.Position) error { return unpark(ctx, pool, p, actorOr(actor), reason) }
			if dryRun {
				act, done = checkParked(ctx, pool), "would be "+done
			}
			n := len(positions)
			if all {
				n, err = eachParked(ctx, pool, act)
			} else {
				err = act(positions)
			}
			if err != nil {
				return notParked(err)
			}
			answer := struct {
				Done   string `json:"done"`
				Events int    `json:"events"`
				DryRun bool   `json:"dry_run"`
			}{done, n, dryRun}
			return a.print(answer, func(w io.Writer) { fmt.Fprintf(w, "%s: %s\n", done, count(int64(n))) })
		})
	}
	cmd.Flags().BoolVar(&all, "all", false, "all parked events")
	addDryRunFlag(cmd, &dryRun)
	addActorFlag(cmd, &actor)
	addReasonFlag(cmd, &reason)
	return cmd
}

// addDryRunFlag adds --dry-run.
func addDryRunFlag(cmd *cobra.Command, dryRun *bool) {
	cmd.Flags().BoolVar(dryRun, "dry-run", false, "show what would change, and change nothing")
}

// checkParked returns a function that checks that events are parked.
func checkParked(ctx context.Context, pool *pgxpool.Pool) func([]ledger.Position) error {
	return func(positions []ledger.Position) error {
		for _, p := range positions {
			found, err := outbox.ReadParked(ctx, pool, p-1, 1)
			if err != nil {
				return err
			}
			if len(found) == 0 || found[0].Position != p {
				return fmt.Errorf("event at position %d: %w", p, outbox.ErrNotParked)
			}
		}
		return nil
	}
}

// eachParked calls act with the positions of all parked events, in batches. It returns the number of events.
func eachParked(ctx context.Context, pool *pgxpool.Pool, act func([]ledger.Position) error) (n int, err error) {
	var last ledger.Position
	for {
		found, err := outbox.ReadParked(ctx, pool, last, outbox.MaxParked)
		if err != nil || len(found) == 0 {
			return n, err
		}
		var positions []ledger.Position
		for _, p := range found {
			positions = append(positions, p.Position)
		}
		if err := act(positions); err != nil {
			return n, err
		}
		n, last = n+len(found), positions[len(positions)-1] // events that were parked again are not retried
	}
}

func parsePositions(args []string) (positions []ledger.Position, err error) {
	for _, arg := range args {
		p, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || p < 1 {
			return nil, &ledger.InvalidError{Field: "position", Value: arg, Rule: "must be a number above 0"}
		}
		positions = append(positions, ledger.Position(p))
	}
	return positions, nil
}

// notParked adds the cure to the error of an event that is not parked.
func notParked(err error) error {
	if f := describe(err); f.exit == exitNotFound {
		return f.hinted("list parked events with: taskledger parked list")
	}
	return err
}
