package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/ledger"
)

// archiveFlags are the options of archive.
type archiveFlags struct {
	olderThan, hold, wait time.Duration
	kinds                 []string
	to, keep, keepKeys    string
	actor, reason         string
}

func newArchiveCommand(a *app) *cobra.Command {
	var f archiveFlags
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Remove finished tasks from the tables, or set how long serve keeps them",
		Long: `Remove tasks that ended longer ago than --older-than from the tables: all their events, as a whole. Dead
tasks stay. Their keys stay known, in 100 bytes each: a key that is enqueued again is discarded, and does not run.

With --to an archive, as of taskledger export, the events are first stored and verified there.

Each batch of 1,000 tasks is a transaction, recorded with actor and reason. If the command is interrupted or killed, run
it again. Several may run at once.

A run waits for transactions that are older than itself, because they may have read a task before its end. Readers of
the feed hold tasks that they have not read: subscribers and the relay for at most --hold longer.

With --keep and --keep-keys, the command archives nothing: it sets how long serve --archive-after keeps the tasks of a
kind, and how long the keys of tasks archived from now on stay known. A forgotten key runs again.`,
		Example: "  taskledger archive --older-than 90d --to /mnt/archive --reason 'retention policy 7'\n" +
			"  taskledger archive --kind invoice.issue --keep 3650d",
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(cmd); err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				if f.isSetting() {
					return keep(ctx, a, pool, f)
				}
				return archiveTasks(ctx, a, pool, f)
			})
		},
	}
	addDuration(cmd.Flags(), &f.olderThan, "older-than", "how long ago a task must have ended")
	cmd.Flags().StringSliceVar(&f.kinds, "kind", nil, "`kinds` of tasks (default: all but taskledger's own)")
	cmd.Flags().StringVar(&f.to, "to", "", "where the events are kept: an archive, or none")
	addDuration(cmd.Flags(), &f.hold, "hold",
		"how much longer a task stays that a subscriber or the relay has not read (default: 7d)")
	addDuration(cmd.Flags(), &f.wait, "wait", "how long to wait for older transactions (default: 10m)")
	cmd.Flags().StringVar(&f.keep, "keep", "",
		"set how long serve keeps the tasks of --kind: a `duration`, forever, or default")
	cmd.Flags().StringVar(&f.keepKeys, "keep-keys", "",
		"set how long the archived keys of --kind stay known: a `duration`, or forever (default: forever)")
	refuseZero(cmd.Flags(), "hold", "wait")
	addActorFlag(cmd, &f.actor)
	addReasonFlag(cmd, &f.reason)
	return cmd
}

// isSetting reports whether the command sets how long something is kept.
func (f archiveFlags) isSetting() bool { return f.keep != "" || f.keepKeys != "" }

func (f archiveFlags) validate(cmd *cobra.Command) error {
	if f.isSetting() {
		for _, name := range []string{"older-than", "to", "hold", "wait"} {
			if cmd.Flags().Changed(name) {
				return usagef("--%s has no effect with --keep and --keep-keys", name)
			}
		}
		if len(f.kinds) != 1 {
			return usagef("--keep and --keep-keys need one --kind")
		}
		return nil
	}
	switch {
	case !cmd.Flags().Changed("older-than"):
		return usagef("--older-than is required, as in --older-than 90d")
	case f.to == "":
		return usagef("--to is required: an archive as of taskledger export, or none")
	}
	return nil
}

// archiveService is the archive as a service of serve.
type archiveService struct {
	after time.Duration
	to    string
}

func (s *archiveService) add(cmd *cobra.Command) {
	addDuration(cmd.Flags(), &s.after, "archive-after",
		"remove tasks from the tables this long after their end: docs/operations.md (default: they stay)")
	cmd.Flags().StringVar(&s.to, "archive-to", "", "where their events are kept: an archive, or none")
	refuseZero(cmd.Flags(), "archive-after")
	bind(cmd.Flags(), "archive-after", "TASKLEDGER_ARCHIVE_AFTER")
	bind(cmd.Flags(), "archive-to", "TASKLEDGER_ARCHIVE_TO")
}

func (s *archiveService) validate() error {
	switch {
	case s.after == 0 && s.to != "":
		return usagef("--archive-to has no effect without --archive-after")
	case s.after != 0 && s.to == "":
		return usagef("--archive-after needs --archive-to: an archive as of taskledger export, or none")
	}
	return nil
}

// place returns the directory of the archive, "" for none.
func (s *archiveService) place() string {
	if s.to == "none" {
		return ""
	}
	return s.to
}

// archiveResult is the result of archive as JSON.
type archiveResult struct {
	archiver.Report
	Seconds float64 `json:"seconds"`
}

func archiveTasks(ctx context.Context, a *app, pool *pgxpool.Pool, f archiveFlags) error {
	o := archiver.Options{
		OlderThan: f.olderThan, Hold: f.hold, Wait: f.wait, Actor: actorOr(f.actor), Reason: f.reason,
	}
	for _, k := range f.kinds {
		o.Kinds = append(o.Kinds, ledger.Kind(k))
	}
	if f.to != "none" {
		place, err := a.openArchive(f.to)
		if err != nil {
			return err
		}
		o.Files = archiver.In(pool, place, f.to)
	}
	began := time.Now()
	show, stop := a.counted("archived")
	o.Progress = func(r archiver.Report) {
		show(fmt.Sprintf("%s tasks, %s a second", count(r.Tasks),
			count(int64(float64(r.Tasks)/time.Since(began).Seconds()))))
	}
	report, err := archiver.Run(ctx, pool, o)
	stop()
	if err != nil {
		if report.Tasks > 0 {
			fmt.Fprintf(a.stderr, "archived before the error: %s tasks\n", count(report.Tasks))
		}
		if damaged := (*archive.FileError)(nil); errors.As(err, &damaged) {
			return failf(exitIntegrity, "%s", err).hinted("of a volume written just now, its events are not as they " +
				"were sealed, and stay: taskledger verify seal; restore an older one from another copy of the archive")
		}
		return archiveError(err)
	}
	return a.print(archiveResult{report, time.Since(began).Seconds()}, func(w io.Writer) {
		fmt.Fprintf(w, "archived: %s tasks with %s events that ended before %s\n", count(report.Tasks),
			count(report.Events), report.Cutoff.UTC().Format(time.RFC3339))
		for _, name := range report.Files {
			fmt.Fprintf(w, "verified: %s\n", name)
		}
		if report.Forgotten > 0 {
			fmt.Fprintf(w, "forgotten: %s keys\n", count(report.Forgotten))
		}
		if report.Held > 0 {
			fmt.Fprintf(w, "held: %s tasks, by reader %s\n", count(report.Held), report.HeldBy)
			fmt.Fprintln(a.stderr, "the reader has not read these tasks: start it, or run the command again later")
		}
	})
}

// keep sets how long serve keeps the tasks of a kind, and how long their keys stay known.
func keep(ctx context.Context, a *app, pool *pgxpool.Pool, f archiveFlags) error {
	s := archiver.Setting{Kind: ledger.Kind(f.kinds[0]), Actor: actorOr(f.actor)}
	var err error
	switch f.keep {
	case "":
	case "forever":
		s.IsForever = true
	case "default":
		s.IsDefault = true
	default:
		if s.Keep, err = parseDuration(f.keep); err != nil {
			return usagef("--keep must be a duration, forever or default, got %q", f.keep)
		}
	}
	keys := time.Duration(-1)
	if f.keepKeys != "" && f.keepKeys != "forever" {
		if keys, err = parseDuration(f.keepKeys); err != nil || keys < 0 {
			return usagef("--keep-keys must be a duration or forever, got %q", f.keepKeys)
		}
	}
	if f.keep != "" {
		if err := archiver.Set(ctx, pool, s, f.reason); err != nil {
			return err
		}
	}
	if f.keepKeys != "" {
		if err := archiver.SetKeyLife(ctx, pool, s.Kind, keys, s.Actor, f.reason); err != nil {
			return err
		}
	}
	answer := struct {
		Kind string `json:"kind"`
		Keep string `json:"keep,omitempty"`
		Keys string `json:"keep_keys,omitempty"`
	}{f.kinds[0], f.keep, f.keepKeys}
	return a.print(answer, func(w io.Writer) {
		if answer.Keep != "" {
			fmt.Fprintf(w, "kind %s: %s\n", answer.Kind, answer.Keep)
		}
		if answer.Keys != "" {
			fmt.Fprintf(w, "keys of kind %s: %s\n", answer.Kind, answer.Keys)
		}
	})
}
