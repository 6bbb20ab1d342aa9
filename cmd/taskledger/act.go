package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/periodic"
)

// act changes an object with a name.
type act struct {
	object string
	do     func(ctx context.Context, a *app, pool *pgxpool.Pool, name string, by operator.Audit) error
}

func newPauseCommand(a *app) *cobra.Command {
	return newActCommand(a, &cobra.Command{
		Use:   "pause OBJECT NAME",
		Short: "Pause a kind, a schedule or a subscriber",
		Long: `Pause an object until it is resumed:

  kind        No worker begins its tasks, including workers that start later. It takes effect within two
              seconds. Running handlers continue, and tasks can be enqueued as usual. If the kind is
              already paused, a new reason replaces the old one.
  schedule    It has no firings.
  subscriber  It gets no events, and misses none.`,
		Example: "  taskledger pause kind coupon.send --reason 'partner is down'\n" +
			"  taskledger pause subscriber mails --reason 'the mail server is down'",
	}, act{"kind", pauseKind}, act{"schedule", changeSchedule("paused", periodic.Pause)},
		act{"subscriber", pauseSubscriber(true)})
}

func newResumeCommand(a *app) *cobra.Command {
	return newActCommand(a, &cobra.Command{
		Use:   "resume OBJECT NAME",
		Short: "Resume a kind, a schedule or a subscriber that is paused",
		Long: `Resume an object that is paused:

  kind        Workers begin its tasks again.
  schedule    It continues from now on. The firings that were due during the pause are passed over, and are
              recorded as one discarded task.
  subscriber  It gets the events from its place on.`,
		Example: "  taskledger resume kind coupon.send\n  taskledger resume subscriber mails",
	}, act{"kind", resumeKind}, act{"schedule", changeSchedule("resumed", periodic.Resume)},
		act{"subscriber", pauseSubscriber(false)})
}

func newDeleteCommand(a *app) *cobra.Command {
	return newActCommand(a, &cobra.Command{
		Use:   "delete OBJECT NAME",
		Short: "Delete a schedule, a subscriber, the limits with a name, or a token",
		Long: `Delete an object:

  schedule    Its tasks stay.
  subscriber  Its place is forgotten.
  limit       Both the limit of starts with this name and the limit of the kind's waiting tasks.
              taskledger limit NAME --concurrency none keeps the others.
  token       A caller of the HTTP API or the console, by its id, the first column of taskledger show tokens. It is
              refused within 5 seconds. No reason is recorded.`,
		Example: "  taskledger delete schedule nightly-report\n" +
			"  taskledger delete subscriber mails --reason 'replaced by mails-2'\n" +
			"  taskledger delete limit coupon.send\n" +
			"  taskledger delete token qd3kx2p7ab",
	}, act{"schedule", changeSchedule("deleted", periodic.Remove)}, act{"subscriber", deleteSubscriber},
		act{"limit", deleteLimit}, act{"token", deleteToken})
}

// newActCommand completes a command that acts on an object with a name.
func newActCommand(a *app, cmd *cobra.Command, acts ...act) *cobra.Command {
	var by operator.Audit
	var objects []string
	for _, act := range acts {
		objects = append(objects, act.object)
	}
	takesObjects(cmd, objects...)
	cmd.Args = objectArgs(func(cmd *cobra.Command, object string, args []string) error {
		if len(args) != 1 {
			return usagef("%s %s takes one name, not %d", cmd.CommandPath(), object, len(args)).
				hinted("usage: %s", cmd.UseLine())
		}
		return nil
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		object, err := findObject(cmd, args[0])
		if err != nil {
			return err
		}
		if object == "token" && by.Reason != "" {
			return usagef("%s token takes no --reason: it records none", cmd.CommandPath())
		}
		by.Actor = actorOr(by.Actor)
		do := acts[slices.Index(objects, object)].do
		return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
			err := do(ctx, a, pool, args[1], by)
			if err == nil {
				a.wake(ctx, pool)
			}
			return err
		})
	}
	addActorFlag(cmd, &by.Actor)
	addReasonFlag(cmd, &by.Reason)
	return cmd
}

func pauseKind(ctx context.Context, a *app, pool *pgxpool.Pool, name string, by operator.Audit) error {
	unchanged := "was paused already; taskledger show kinds shows the reason"
	if by.Reason != "" {
		unchanged = "was already paused; its reason is updated"
	}
	return a.changeKind(ctx, pool, name, "paused", unchanged,
		func(o *operator.Operator) (bool, error) { return o.PauseKind(ctx, ledger.Kind(name), by) })
}

func resumeKind(ctx context.Context, a *app, pool *pgxpool.Pool, name string, by operator.Audit) error {
	return a.changeKind(ctx, pool, name, "resumed", "was not paused",
		func(o *operator.Operator) (bool, error) { return o.ResumeKind(ctx, ledger.Kind(name), by) })
}

// changeSchedule returns the act that calls change with a schedule. done is the past participle of the change, for the
// output.
func changeSchedule(done string, change func(ctx context.Context, db periodic.DB, name, actor, reason string) error,
) func(context.Context, *app, *pgxpool.Pool, string, operator.Audit) error {
	return func(ctx context.Context, a *app, pool *pgxpool.Pool, name string, by operator.Audit) error {
		if err := change(ctx, pool, name, by.Actor, by.Reason); err != nil {
			return unknownSchedule(err, name)
		}
		answer := struct {
			Name string `json:"name"`
			Done string `json:"done"`
		}{name, done}
		return a.print(answer, func(w io.Writer) { fmt.Fprintf(w, "%s %s\n", done, plain(name)) })
	}
}

// pauseSubscriber returns the act that pauses or resumes a subscriber.
func pauseSubscriber(isPaused bool) func(context.Context, *app, *pgxpool.Pool, string, operator.Audit) error {
	return func(ctx context.Context, a *app, pool *pgxpool.Pool, name string, by operator.Audit) error {
		if err := subscribers.Pause(ctx, pool, name, isPaused, by.Actor, by.Reason); err != nil {
			return unknownSubscriber(err)
		}
		return showSubscriber(ctx, a, pool, name)
	}
}

func deleteSubscriber(ctx context.Context, a *app, pool *pgxpool.Pool, name string, by operator.Audit) error {
	if err := subscribers.Remove(ctx, pool, name, by.Actor, by.Reason); err != nil {
		return unknownSubscriber(err)
	}
	answer := struct {
		Deleted string `json:"deleted"`
	}{name}
	return a.print(answer, func(w io.Writer) { fmt.Fprintf(w, "deleted subscriber %s\n", name) })
}

func deleteLimit(ctx context.Context, a *app, pool *pgxpool.Pool, name string, by operator.Audit) error {
	var waiting, running bool
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
		if waiting, err = operator.RemoveWaitingLimit(ctx, tx, ledger.Kind(name), by); err != nil {
			return err
		}
		running, err = operator.RemoveStartLimit(ctx, tx, name, by)
		return err
	})
	if err != nil {
		return err
	}
	answer := struct {
		Name    string `json:"name"`
		Removed bool   `json:"removed"`
	}{name, waiting || running}
	return a.print(answer, func(w io.Writer) {
		if waiting {
			fmt.Fprintf(w, "any number of tasks of kind %s may wait\n", plain(name))
		}
		if running {
			fmt.Fprintf(w, "any number of tasks of limit %s may run\n", plain(name))
		}
		if !waiting && !running {
			fmt.Fprintf(w, "there was no limit %s\n", plain(name))
		}
	})
}
