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

	"github.com/taskledger/taskledger/internal/feed"
	record "github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/outbox"
)

// rebaseFlags are the options of rebase.
type rebaseFlags struct {
	yes, dryRun     bool
	newInstallation bool
	actor, reason   string
}

func newRebaseCommand(a *app) *cobra.Command {
	var f rebaseFlags
	cmd := &cobra.Command{
		Use:   "rebase",
		Short: "Make a database from a dump or logical replication usable",
		Long: `Make a database from a dump or logical replication usable. Its transaction ids belong to
another database, so relay and projector refuse to work. The command records up to which event they are
meaningless, and all events are published and projected again. Without --yes it only shows the changes.

Services, producers and workers may run meanwhile: they wait briefly. A subscription that still writes
events is refused (exit code 4). If the command is interrupted or killed, nothing has changed: run it again.
In a database that needs no rebase it changes nothing. It also advances the sequence of positions if that is
behind the events, which makes enqueues fail.

A copy that runs while the original runs needs its own NATS account, and --new-installation, before its
services start. The command needs the owner of the schema taskledger.`,
		Example: "  taskledger rebase\n  taskledger rebase --yes --reason 'restored the dump of Monday'",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return rebase(ctx, a, pool, f)
			})
		},
	}
	cmd.Flags().BoolVar(&f.yes, "yes", false, "change the database (default: show what would change)")
	addDryRunFlag(cmd, &f.dryRun)
	cmd.MarkFlagsMutuallyExclusive("yes", "dry-run")
	cmd.Flags().BoolVar(&f.newInstallation, "new-installation", false, "give the ledger an identity of its own")
	addActorFlag(cmd, &f.actor)
	addReasonFlag(cmd, &f.reason)
	return cmd
}

// rebaseResult is the result of rebase as JSON.
type rebaseResult struct {
	feed.RebasePlan
	Installation string `json:"installation,omitempty"` // the new one
	DryRun       bool   `json:"dry_run"`
}

func rebase(ctx context.Context, a *app, pool *pgxpool.Pool, f rebaseFlags) error {
	plan, err := feed.PlanRebase(ctx, pool)
	if err != nil {
		return err
	}
	answer := rebaseResult{RebasePlan: plan, DryRun: !f.yes}
	if f.yes {
		if answer.Installation, err = doRebase(ctx, a, pool, f, plan); err != nil {
			return err
		}
	}
	return a.print(answer, func(w io.Writer) { renderRebase(w, answer, f) })
}

// doRebase returns the new installation, "" for the old one.
func doRebase(ctx context.Context, a *app, pool *pgxpool.Pool, f rebaseFlags, plan feed.RebasePlan) (string, error) {
	if f.newInstallation {
		s, err := relays.ReadStatus(ctx, pool, nil, outbox.StreamConfig{})
		if err != nil {
			return "", err
		}
		if s.Relay != nil && s.Relay.Alive {
			return "", failf(exitConflict, "a relay works with the present installation").
				hinted("stop it, then run the command again")
		}
	}
	var installation string
	finish := func(ctx context.Context, tx pgx.Tx) (err error) {
		installation = ""
		if plan.Needed {
			err = errors.Join(projection.Reset(ctx, tx), relays.ForgetParked(ctx, tx))
		}
		if err == nil && f.newInstallation {
			installation, err = feed.RenewInstallation(ctx, tx)
		}
		if err != nil {
			return err
		}
		return record.Record(ctx, tx, record.Operation{
			Action: record.Rebase, Actor: actorOr(f.actor), Reason: f.reason,
			Detail: map[string]string{"last_position": fmt.Sprint(plan.Last), "installation": installation},
		})
	}
	if plan.Needed {
		_, err := feed.Rebase(ctx, pool, &feed.RebaseOptions{Finish: finish})
		return installation, err
	}
	if !plan.SequenceBehind && !f.newInstallation {
		return "", nil
	}
	if _, err := feed.Rebase(ctx, pool, nil); err != nil { // advances the sequence if it is behind
		return "", err
	}
	return installation, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return finish(ctx, tx) })
}

func renderRebase(w io.Writer, r rebaseResult, f rebaseFlags) {
	switch {
	case !r.Needed && r.SequenceBehind && r.DryRun:
		fmt.Fprintf(w, "the sequence of positions is behind the last event, %s, so enqueues fail; to advance it: "+
			"taskledger rebase --yes\n", count(int64(r.Last)))
	case !r.Needed && r.SequenceBehind:
		fmt.Fprintf(w, "advanced the sequence of positions to %s; nothing is published again\n", count(int64(r.Last)))
	case !r.Needed:
		fmt.Fprintln(w, "the transaction ids belong to this database: no rebase is needed")
	case r.DryRun:
		readers := make([]string, len(r.Readers))
		for i, name := range r.Readers {
			readers[i] = plain(name)
		}
		renderFields(w,
			[2]string{"cursors of another database", strings.Join(readers, ", ")},
			[2]string{"last position", count(int64(r.Last))},
		)
		fmt.Fprintln(w, "all events would be published and projected again; to do so: taskledger rebase --yes")
		if !f.newInstallation {
			fmt.Fprintln(w, "if the original goes on, first connect this database to another NATS account, then: "+
				"taskledger rebase --yes --new-installation")
		}
	default:
		fmt.Fprintf(w, "rebased up to position %s; relay and projector begin again at the first event\n",
			count(int64(r.Last)))
		if !f.newInstallation {
			fmt.Fprintln(w, "its identity is still its original's: if that goes on, stop the services of this "+
				"database, connect it to another NATS account, then: taskledger rebase --yes --new-installation")
		}
	}
	switch {
	case r.Installation != "":
		fmt.Fprintln(w, "the installation is now", r.Installation)
	case f.newInstallation:
		fmt.Fprintln(w, "the ledger would get a new installation")
	}
}
