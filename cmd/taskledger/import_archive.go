package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/archive"
	record "github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/internal/relays"
)

func newImportArchiveCommand(a *app) *cobra.Command {
	var actor, reason string
	cmd := &cobra.Command{
		Use:   "archive PLACE",
		Short: "Insert the events of an archive into an empty ledger",
		Long: `Verify all files of an archive, and insert their events into an empty ledger: with their positions,
versions, times and logins, in one transaction. A ledger with events is refused (exit code 4). If the import is
interrupted or killed, nothing has changed: run it again. The archive must contain the whole history of each task.

Afterwards enqueues of the same keys find their tasks, unfinished tasks go on, and the services make tables and
stream from the events. The ledger keeps its own identity and is sealed as a new tree. It needs the owner of the
schema taskledger, in a database after taskledger migrate and before anything else.`,
		Example: "  taskledger import archive /mnt/archive --reason 'moved to the new cluster'",
		Args:    exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			place, err := a.openArchive(args[0])
			if err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return importArchive(ctx, a, pool, place, args[0], record.Operation{
					Action: record.ImportArchive, Actor: actorOr(actor), Reason: reason,
				})
			})
		},
	}
	addActorFlag(cmd, &actor)
	addReasonFlag(cmd, &reason)
	return cmd
}

// importedArchive is the result of import archive as JSON.
type importedArchive struct {
	archive.Imported
	TookMS int64 `json:"took_ms"`
}

func importArchive(
	ctx context.Context, a *app, pool *pgxpool.Pool, place archive.Store, name string, act record.Operation,
) error {
	began := time.Now()
	o := &archive.ImportOptions{Finish: func(ctx context.Context, tx pgx.Tx) error {
		return errors.Join(projection.Reset(ctx, tx), relays.ForgetParked(ctx, tx), record.Record(ctx, tx, act))
	}}
	var done archive.Imported
	_, err := withProgress(a, "verified or imported", func(show func(done, total int64)) (err error) {
		o.Verified = func(done, total int64) { show(done, 2*total) }
		o.Progress = func(done, total int64) { show(total+done, 2*total) }
		done, err = archive.Import(ctx, pool, place, o)
		return err
	})
	if errors.Is(err, archive.ErrNoEvents) {
		return failf(exitConflict, "%s: %s", plain(name), err).hinted("name the place to which export wrote")
	}
	if err != nil {
		return archiveError(err)
	}
	return a.print(importedArchive{done, time.Since(began).Milliseconds()}, func(w io.Writer) {
		fmt.Fprintf(w, "imported: %s events of %d volumes, up to position %d, and %s timers\n", count(done.Events),
			done.Volumes, done.Last, count(done.Timers))
		if done.LeftOut > 0 {
			fmt.Fprintf(w, "left out: %s events of keys that were enqueued again after their task was archived\n",
				count(done.LeftOut))
		}
	})
}
