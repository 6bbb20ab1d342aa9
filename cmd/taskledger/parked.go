package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
)

func listParked(ctx context.Context, a *app, pool *pgxpool.Pool, f showFlags) error {
	after, err := f.position()
	if err != nil {
		return err
	}
	all, next, err := cutPage(f.limit, func(limit int) ([]relays.Parked, error) {
		return relays.ReadParked(ctx, pool, after, limit)
	}, func(p relays.Parked) ledger.Position { return p.Position })
	if err != nil {
		return err
	}
	list := struct {
		Parked []relays.Parked `json:"parked"`
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
		fmt.Fprintln(a.stderr, relays.ParkedCure)
	}
	noteNext(a, next)
	return nil
}

// showParked prints a parked event.
func showParked(ctx context.Context, a *app, pool *pgxpool.Pool, args []string) error {
	positions, err := parsePositions(args)
	if err != nil {
		return err
	}
	found, err := relays.ReadParked(ctx, pool, positions[0]-1, 1)
	if err != nil {
		return err
	}
	if len(found) == 0 || found[0].Position != positions[0] {
		return notParked(fmt.Errorf("position %d: %w", positions[0], subscribers.ErrNotParked))
	}
	return a.print(found[0], func(w io.Writer) { renderParked(w, found[0]) })
}

func renderParked(w io.Writer, p relays.Parked) {
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
func parkedCure(p relays.Parked) string {
	cure := fmt.Sprintf("taskledger cancel %s, unless the task has ended; then: taskledger discard parked %d",
		shellKey(p.Key), p.Position)
	if p.Key.Validate() == nil {
		cure = fmt.Sprintf("remove the reason, then: taskledger retry parked %d; or: %s", p.Position, cure)
	}
	return cure
}

// unpark is an act on parked events: of the stream, and of a task that a subscriber has not handled.
type unpark struct {
	done         string // past participle of the act
	ofStream     func(context.Context, relays.DB, []ledger.Position, string, string) error
	ofSubscriber func(ctx context.Context, db relays.DB, name string, k ledger.Key, actor, reason string) (int, error)
	isAwaited    bool          // it waits for the program of the subscriber
	wait         time.Duration // how long
}

// unparkFlags are the options of an act on parked events.
type unparkFlags struct {
	subscriber    string
	all, dryRun   bool
	actor, reason string
}

func newRetryParkedCommand(a *app) *cobra.Command {
	u := &unpark{
		done: "retried", ofStream: relays.RetryParked,
		ofSubscriber: subscribers.RetryParked,
		isAwaited:    true, wait: 10 * time.Second,
	}
	cmd := newUnparkCommand(a, &cobra.Command{
		Use:   "parked [POSITION... | KIND BIZ_ID]",
		Short: "Let the relay publish parked events again, or a subscriber handle them",
		Long: `Let the relay publish parked events again, in the order of their positions. Remove the cause first, for
example a max_payload of the NATS server that is too small. An event that still cannot be published is parked
again. Subscribers may receive the event after later events of its task.

With --subscriber, let the program of the subscriber handle the parked events of a task again, in their order, and wait
for it. If one fails, they stay parked, and the exit code is 1. An event that stops a subscriber is retried without this
command.`,
		Example: "  taskledger retry parked 4711 4712 --reason 'max_payload raised'\n" +
			"  taskledger retry parked --all\n" +
			"  taskledger retry parked --subscriber coupons coupon.send order-17 --reason 'fixed in 1.4.2'",
	}, u)
	addDuration(cmd.Flags(), &u.wait, "wait", "with --subscriber: how long to wait for its program; 0: not at all")
	return cmd
}

func newDiscardCommand(a *app) *cobra.Command {
	cmd := newUnparkCommand(a, &cobra.Command{
		Use:   "discard OBJECT [POSITION... | KIND BIZ_ID]",
		Short: "Give up parked events, or remove illegal ones from their list",
		Long: `Discard events; they stay in the ledger:

  parked   Parked events are never published, not even by taskledger rebuild stream. Their tasks do not change:
           workers begin the available ones. First cancel a task that must not run (taskledger cancel).
           With --subscriber, the subscriber leaves out the failing event of a task, whether it is parked or
           stops the subscriber. Later events of the task are handled. A rebuild of its tables leaves the event
           out as well.
  illegal  The illegal events of a task leave the list, and the task is listed as before them. First take INSERT
           on the table event from the role that wrote them, which taskledger history shows. If the task gets
           another event, or the projection is rebuilt, they are listed again.`,
		Example: "  taskledger discard parked 4711 --reason 'written by mistake'\n" +
			"  taskledger discard parked --subscriber coupons coupon.send order-17 --reason 'test data'\n" +
			"  taskledger discard illegal coupon.send order-17 --reason 'role corrected'",
	}, &unpark{
		done: "discarded", ofStream: relays.DiscardParked,
		ofSubscriber: subscribers.DiscardParked,
	})
	takesObjects(cmd, "parked", "illegal")
	argsOfParked, discardParked := cmd.Args, cmd.RunE
	cmd.Args = objectArgs(func(cmd *cobra.Command, object string, args []string) error {
		if object == "parked" {
			return argsOfParked(cmd, args)
		}
		for _, name := range []string{"subscriber", "all", "dry-run"} {
			if cmd.Flags().Changed(name) {
				return usagef("--%s is for taskledger discard parked", name)
			}
		}
		if len(args) != 2 {
			return usagef("name a task with illegal events, as KIND BIZ_ID").
				hinted("list them with: taskledger show illegal")
		}
		return nil
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		object, err := findObject(cmd, args[0])
		if err != nil {
			return err
		}
		if object == "parked" {
			return discardParked(cmd, args[1:])
		}
		actor, err1 := cmd.Flags().GetString("actor")
		reason, err2 := cmd.Flags().GetString("reason")
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		return discardIllegal(cmd.Context(), a, args[1:], actor, reason)
	}
	return cmd
}

// newUnparkCommand completes a command that removes parked events from the list.
func newUnparkCommand(a *app, cmd *cobra.Command, u *unpark) *cobra.Command {
	var f unparkFlags
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case f.subscriber != "" && (f.all || len(args) != 2):
			return usagef("name a task whose events the subscriber has parked, as KIND BIZ_ID").
				hinted("list them with: taskledger show parked --subscriber %s", shellWord(f.subscriber))
		case f.subscriber == "" && f.all == (len(args) > 0):
			return usagef("name events by their positions, or --all").
				hinted("list them with: taskledger show parked")
		case f.subscriber == "" && cmd.Flags().Changed("wait"):
			return usagef("--wait is for --subscriber")
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.actor = actorOr(f.actor)
		return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
			if f.subscriber != "" {
				// The key of a parked event may be invalid.
				return u.handle(ctx, a, pool, ledger.Key{Kind: ledger.Kind(args[0]), BizID: ledger.BizID(args[1])}, f)
			}
			positions, err := parsePositions(args)
			if err != nil {
				return err
			}
			return u.publish(ctx, a, pool, positions, f)
		})
	}
	cmd.Flags().StringVar(&f.subscriber, "subscriber", "", "the events of a task that the subscriber with this `name` "+
		"has parked (default: events that could not be published)")
	refuseZero(cmd.Flags(), "subscriber")
	cmd.Flags().BoolVar(&f.all, "all", false, "all events that could not be published")
	addDryRunFlag(cmd, &f.dryRun)
	addActFlags(cmd, &f.actor, &f.reason)
	return cmd
}

// unparkResult is the result of an act on parked events as JSON.
type unparkResult struct {
	Done   string `json:"done"`
	Events int    `json:"events"`
	DryRun bool   `json:"dry_run"`
}

// publish acts on events that could not be published: those at the positions, or all.
func (u *unpark) publish(
	ctx context.Context, a *app, pool *pgxpool.Pool, positions []ledger.Position, f unparkFlags,
) error {
	act := func(p []ledger.Position) error { return u.ofStream(ctx, pool, p, f.actor, f.reason) }
	done := u.done
	if f.dryRun {
		act, done = checkParked(ctx, pool), "would be "+done
	}
	n := len(positions)
	var err error
	if f.all {
		n, err = eachParked(ctx, pool, act)
	} else {
		err = act(positions)
	}
	if err != nil {
		return notParked(err)
	}
	return a.print(unparkResult{done, n, f.dryRun}, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %s\n", done, count(int64(n)))
	})
}

// handle acts on the events of a task that a subscriber has not handled.
func (u *unpark) handle(ctx context.Context, a *app, pool *pgxpool.Pool, key ledger.Key, f unparkFlags) error {
	act, done := u.ofSubscriber, u.done
	if f.dryRun {
		act, done = countUnhandled, "would be "+done
	}
	n, err := act(ctx, pool, f.subscriber, key, f.actor, f.reason)
	if err == nil && u.isAwaited && !f.dryRun {
		done, err = awaitRetry(ctx, pool, f.subscriber, key, u.wait)
	}
	if err != nil {
		return err
	}
	return a.print(unparkResult{done, n, f.dryRun}, func(w io.Writer) { fmt.Fprintf(w, "%s: %d events\n", done, n) })
}

// addDryRunFlag adds --dry-run.
func addDryRunFlag(cmd *cobra.Command, dryRun *bool) {
	cmd.Flags().BoolVar(dryRun, "dry-run", false, "show what would change, and change nothing")
}

// checkParked returns a function that checks that events are parked.
func checkParked(ctx context.Context, pool *pgxpool.Pool) func([]ledger.Position) error {
	return func(positions []ledger.Position) error {
		for _, p := range positions {
			found, err := relays.ReadParked(ctx, pool, p-1, 1)
			if err != nil {
				return err
			}
			if len(found) == 0 || found[0].Position != p {
				return fmt.Errorf("event at position %d: %w", p, subscribers.ErrNotParked)
			}
		}
		return nil
	}
}

// eachParked calls act with the positions of all parked events, in batches. It returns the number of events.
func eachParked(ctx context.Context, pool *pgxpool.Pool, act func([]ledger.Position) error) (n int, err error) {
	var last ledger.Position
	for {
		found, err := relays.ReadParked(ctx, pool, last, relays.MaxParked)
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
		return f.hinted("list parked events with: taskledger show parked")
	}
	return err
}
