package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/erasure"
	"github.com/taskledger/taskledger/ledger"
)

func newEraseCommand(a *app) *cobra.Command {
	var o erasure.Options
	var isPrefix bool
	cmd := &cobra.Command{
		Use:   "erase [KIND BIZ_ID]",
		Short: "Remove the data, meta and actor of a task's events for good",
		Long: `Remove data, meta and actor of all events of a task, and all copies of them: in the tables, in
deliveries of webhooks and alarms about it, in the stream and in archives. Its key, states and times stay, and so does
the proof of the seal. An unfinished task is cancelled first. The act is recorded.

The archives to which tasks were archived are rewritten. Name others, such as exports, by --archive: it contains a
list of the erasures, too. After a restore from a backup, erase again what such lists contain: --again.

If the command is interrupted or killed, run it again. It needs the projector, and the relay deletes the messages of the
stream, so taskledger serve must run.`,
		Example: "  taskledger erase mail.send order-17 --reason 'request 12'\n" +
			"  taskledger erase mail.send customer-7/ --prefix --dry-run\n" +
			"  taskledger erase mail.send customer-7/ --prefix --archive /mnt/export --reason 'request 13'\n" +
			"  taskledger erase --again --archive /mnt/export",
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.DryRun && !isPrefix:
				return usagef("--dry-run lists the tasks of --prefix: give both")
			case o.Again && len(args) == 0 && !isPrefix:
			case o.Again:
				return usagef("--again erases what archives list: give no key with it")
			case len(args) != 2:
				return usagef("give KIND and BIZ_ID, got %d arguments", len(args))
			case o.Reason == "" && !o.DryRun:
				return usagef("--reason is required: it is the record of why the texts are gone")
			case isPrefix:
				o.Prefix = &ledger.Key{Kind: ledger.Kind(args[0]), BizID: ledger.BizID(args[1])}
			default:
				o.Keys = []ledger.Key{{Kind: ledger.Kind(args[0]), BizID: ledger.BizID(args[1])}}
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return eraseTasks(ctx, a, pool, o)
			})
		},
	}
	cmd.Flags().BoolVar(&isPrefix, "prefix", false, "all tasks of KIND whose id begins with BIZ_ID")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "list the tasks of --prefix and erase nothing")
	cmd.Flags().BoolVar(&o.Again, "again", false, "the erasures that archives list and the restored ledger lacks")
	cmd.Flags().StringSliceVar(&o.Archives, "archive", nil, "another archive; may be repeated")
	cmd.Flags().StringSliceVar(&o.Gone, "gone", nil,
		"a recorded archive that exists no more, or has moved to an --archive; may be repeated")
	cmd.Flags().DurationVar(&o.Wait, "wait", time.Minute, "how long to wait for the projector")
	refuseZero(cmd.Flags(), "wait")
	addActorFlag(cmd, &o.Actor)
	addReasonFlag(cmd, &o.Reason)
	return cmd
}

func eraseTasks(ctx context.Context, a *app, pool *pgxpool.Pool, o erasure.Options) error {
	o.Actor, o.Open = actorOr(o.Actor), a.openArchive
	show, stop := a.counted("erased")
	o.Progress = func(r erasure.Report) { show(count(r.Tasks) + " tasks") }
	report, err := erasure.Erase(ctx, pool, o)
	stop()
	if err != nil {
		if report.Tasks > 0 {
			fmt.Fprintf(a.stderr, "erased in the tables before the error: %s tasks; run the command again\n",
				count(report.Tasks))
		}
		return eraseError(err)
	}
	return a.print(report, func(w io.Writer) {
		if o.DryRun {
			for _, k := range report.Keys {
				fmt.Fprintln(w, plain(k.String()))
			}
			fmt.Fprintf(w, "%s tasks would be erased\n", count(int64(len(report.Keys))))
			return
		}
		fmt.Fprintf(w, "erased: %s tasks, %s events\n", count(report.Tasks), count(report.Events))
		for _, p := range slices.Sorted(maps.Keys(report.Archives)) {
			done := report.Archives[p]
			fmt.Fprintf(w, "archive %s: %s events in %s volumes\n", plain(p), count(done.Events),
				count(int64(done.Volumes)))
			for _, name := range done.Unfinished {
				fmt.Fprintf(w, "unfinished export %s: run taskledger export %s to its end\n", plain(name), plain(p))
			}
		}
	})
}

// eraseError adds the cures.
func eraseError(err error) error {
	unreadable := (*erasure.UnreadableError)(nil)
	switch {
	case errors.Is(err, ledger.ErrUnknownTask):
		return failf(exitNotFound, "%s", err).hinted("all tasks whose id begins so: --prefix")
	case errors.Is(err, erasure.ErrNotProjected):
		return failf(exitUnavailable, "%s", err).hinted("the projector must run: taskledger serve; it may be behind, " +
			"or rebuilding its tables: taskledger status; then run the command again")
	case errors.As(err, &unreadable):
		return failf(exitUnavailable, "%s", err).hinted("mount it, or if it exists no more or has moved: --gone %s, "+
			"with --archive for its new place", unreadable.Place)
	}
	return archiveError(err)
}
