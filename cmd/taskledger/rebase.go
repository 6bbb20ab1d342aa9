package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	record "github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
)

// rebaseFlags are the options of rebase.
type rebaseFlags struct {
	yes             bool
	newInstallation bool
	actor, reason   string
}

func newRebaseCommand(a *app) *cobra.Command {
	var f rebaseFlags
	cmd := &cobra.Command{
		Use:   "rebase",
		Short: "Make a database valid that came from a dump or by logical replication",
		Long: `Make a database valid that came from a dump or by logical replication. Its transaction ids are those of
another database, so relay and projector refuse to work. The command replaces them, and all events are
published and projected again. Without --yes it shows what it would do and changes nothing.

Services, producers and workers may run meanwhile: relay and projector begin when it ends. A subscription
that still writes events is refused (exit code 4). If the command is interrupted or killed, run it again:
it does the rest. In a database that needs no rebase it changes nothing.

A copy that runs beside the original needs a NATS account of its own, and --new-installation, before its
services start. Otherwise run taskledger stream rebuild --yes next, since the stream may have events that
the copy has lost. The command needs the owner of the schema taskledger.`,
		Example: "  taskledger rebase\n  taskledger rebase --yes --reason 'restored the dump of Monday'",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return rebase(ctx, a, pool, f)
			})
		},
	}
	cmd.Flags().BoolVar(&f.yes, "yes", false, "change the database (default: show what would change)")
	cmd.Flags().BoolVar(&f.newInstallation, "new-installation", false, "give the ledger an identity of its own")
	addActorFlag(cmd, &f.actor)
	cmd.Flags().StringVar(&f.reason, "reason", "", "reason, for the record")
	return cmd
}

// rebased is the result of rebase as JSON.
type rebased struct {
	feed.RebasePlan
	Installation string `json:"installation,omitempty"` // the new one
	DryRun       bool   `json:"dry_run"`
}

func rebase(ctx context.Context, a *app, pool *pgxpool.Pool, f rebaseFlags) error {
	plan, err := showRebase(a, "read", func(o *feed.RebaseOptions) (feed.RebasePlan, error) {
		return feed.PlanRebase(ctx, pool, o)
	})
	if err != nil {
		return err
	}
	answer := rebased{RebasePlan: plan, DryRun: !f.yes}
	if f.yes {
		if answer.Installation, err = doRebase(ctx, a, pool, f, plan.Needed); err != nil {
			return err
		}
	}
	return a.print(answer, func(w io.Writer) { renderRebase(w, answer, f) })
}

// showRebase calls f with options that show the progress.
func showRebase[T any](a *app, done string, f func(*feed.RebaseOptions) (T, error)) (T, error) {
	var show func(int64)
	stop := func() {}
	defer func() { stop() }()
	return f(&feed.RebaseOptions{
		Readers: []string{outbox.Reader, projector.Reader},
		Progress: func(at, last ledger.Position) {
			if show == nil {
				show, stop = a.progress(done, int64(last))
			}
			show(int64(at))
		},
	})
}

// doRebase returns the new installation, "" for the old one.
func doRebase(ctx context.Context, a *app, pool *pgxpool.Pool, f rebaseFlags, needed bool) (string, error) {
	if f.newInstallation {
		s, err := outbox.ReadStatus(ctx, pool, nil, outbox.StreamConfig{})
		if err != nil {
			return "", err
		}
		if s.Relay != nil && s.Relay.Alive {
			return "", failf(exitConflict, "a relay works with the present installation").
				hinted("stop it, then run the command again")
		}
	}
	var installation string
	finish := func(ctx context.Context, tx pgx.Tx, changed int64) (err error) {
		installation = ""
		if needed {
			err = errors.Join(projector.Reset(ctx, tx), outbox.ForgetParked(ctx, tx))
		}
		if err == nil && f.newInstallation {
			installation, err = ledger.RenewInstallation(ctx, tx)
		}
		if err != nil {
			return err
		}
		return record.Record(ctx, tx, record.Operation{
			Action: record.Rebase, Actor: actorOr(f.actor), Reason: f.reason,
			Detail: map[string]string{"events": fmt.Sprint(changed), "installation": installation},
		})
	}
	if !needed {
		if !f.newInstallation {
			return "", nil
		}
		return installation, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return finish(ctx, tx, 0) })
	}
	_, err := showRebase(a, "rebased", func(o *feed.RebaseOptions) (bool, error) {
		o.Finish = finish
		return feed.Rebase(ctx, pool, o)
	})
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return "", failf(exitFailed, "interrupted: relay and projector refuse to work").
			hinted("run it again for the rest: taskledger rebase --yes")
	}
	return installation, err
}

func renderRebase(w io.Writer, r rebased, f rebaseFlags) {
	switch {
	case !r.Needed:
		fmt.Fprintln(w, "the transaction ids are those of this database: no rebase is needed")
	case r.DryRun:
		readers := make([]string, len(r.Readers))
		for i, name := range r.Readers {
			readers[i] = plain(name)
		}
		renderFields(w,
			[2]string{"events of another database", count(r.Events)},
			[2]string{"cursors of another database", strings.Join(readers, ", ")},
			[2]string{"last position", count(int64(r.Last))},
		)
		fmt.Fprintln(w, "all events would be published and projected again; to do so: taskledger rebase --yes")
	default:
		fmt.Fprintf(w, "rebased: %s events; relay and projector begin again at the first event\n", count(r.Events))
	}
	switch {
	case r.Installation != "":
		fmt.Fprintln(w, "the installation is now", r.Installation)
	case f.newInstallation:
		fmt.Fprintln(w, "the ledger would get a new installation")
	case r.Needed && !r.DryRun:
		fmt.Fprintln(w, "next: taskledger stream rebuild --yes")
	}
}
