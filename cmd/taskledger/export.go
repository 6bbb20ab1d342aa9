package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/bucket"
	"github.com/taskledger/taskledger/ledger"
)

// exportFlags are the options of export.
type exportFlags struct {
	from, to when
	kinds    []string
	wait     time.Duration
}

func newExportCommand(a *app) *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export PLACE",
		Short: "Write events to files that are verified without a database",
		Long: `Write the events of a range of positions to an archive: a directory, or s3://BUCKET/PREFIX. The files
are JSONL.zst with an index and a manifest; with a seal, also the tree that proves them: docs/archive.md.

Without --from the export continues where the last one into this archive ended, so a timer can run it: each call
adds a volume with the new events. If it is interrupted or killed, run it again: it continues. It waits for
transactions that are still open, and stops nothing. --from and --to take a time, an age or a position; the events
of a time are found by their positions. It needs the role reader.`,
		Example: "  taskledger export /mnt/archive\n" +
			"  taskledger export s3://ledger/2026 --from 2026-01-01T00:00:00Z --to 2026-04-01T00:00:00Z",
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			place, err := a.openArchive(args[0])
			if err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return exportEvents(ctx, a, pool, place, args[0], f)
			})
		},
	}
	cmd.Flags().Var(&f.from, "from", "first event (default: the next after the last export)")
	cmd.Flags().Var(&f.to, "to", "last event (default: the newest)")
	cmd.Flags().StringSliceVar(&f.kinds, "kind", nil, "only this `kind`; may be repeated (default: all)")
	cmd.Flags().DurationVar(&f.wait, "wait", time.Minute, "how long to wait for open transactions")
	refuseZero(cmd.Flags(), "wait")
	return cmd
}

// exported is the result of export as JSON.
type exported struct {
	Place string `json:"place"`
	archive.Manifest

	Bytes  int64 `json:"bytes"`
	TookMS int64 `json:"took_ms"`
}

func exportEvents(
	ctx context.Context, a *app, pool *pgxpool.Pool, place archive.Store, name string, f exportFlags,
) error {
	o := &archive.ExportOptions{Wait: f.wait}
	for _, kind := range f.kinds {
		k := ledger.Kind(kind)
		if err := k.Validate(); err != nil {
			return usagef("--kind: %s", err)
		}
		o.Kinds = append(o.Kinds, k)
	}
	var err error
	if o.From, err = f.from.positionFrom(ctx, pool); err != nil {
		return err
	}
	if o.To, err = f.to.positionTo(ctx, pool); err != nil {
		return err
	}
	began := time.Now()
	var m archive.Manifest
	_, err = withProgress(a, "exported", func(show func(done, total int64)) (err error) {
		o.Progress = func(at, first, last ledger.Position) { show(int64(at-first)+1, int64(last-first)+1) }
		m, err = archive.Export(ctx, pool, place, o)
		return err
	})
	var open *archive.OpenError
	switch {
	case errors.Is(err, archive.ErrNothing):
		fmt.Fprintf(a.stderr, "nothing to export: %s\n", err)
		return nil
	case errors.As(err, &open):
		return failf(exitUnavailable, "%s", err)
	case err != nil:
		return archiveError(err)
	}
	answer := exported{Place: name, Manifest: m, TookMS: time.Since(began).Milliseconds()}
	for _, s := range m.Segments {
		answer.Bytes += s.Bytes
	}
	return a.print(answer, func(w io.Writer) {
		fmt.Fprintf(w, "exported: %s events, positions %d to %d, %s bytes in %d segments: volume %s\n", count(m.Events),
			m.From, m.To, count(answer.Bytes), len(m.Segments), m.Name)
		if m.Checkpoint == nil {
			fmt.Fprintln(w, "not proved: the ledger is not sealed; see: taskledger seal --help")
		} else {
			fmt.Fprintf(w, "proved by the tree of %s leaves\n", count(m.Checkpoint.Size))
		}
	})
}

// archiveError adds exit codes to errors of an archive.
func archiveError(err error) error {
	var file *archive.FileError
	switch {
	case errors.As(err, &file):
		return failf(exitIntegrity, "%s", err).
			hinted("restore this file from another copy of the archive, or export the events again")
	case errors.Is(err, archive.ErrExists), errors.Is(err, archive.ErrNotEmpty):
		return failf(exitConflict, "%s", err)
	}
	return err
}

// positionFrom returns the first position of a range that begins at w, and 0 if the flag is not set.
func (w *when) positionFrom(ctx context.Context, db ledger.DB) (ledger.Position, error) {
	if !w.isSet() || w.position != 0 {
		return w.position, nil
	}
	return archive.PositionAt(ctx, db, w.time())
}

// positionTo returns the last position of a range that ends at w, and 0 if the flag is not set.
func (w *when) positionTo(ctx context.Context, db ledger.DB) (ledger.Position, error) {
	p, err := w.positionFrom(ctx, db)
	if err != nil || !w.isSet() || w.position != 0 {
		return p, err
	}
	if p == 1 {
		return 0, usagef("--to: the first event is later than %s", w)
	}
	return p - 1, nil
}

// openArchive returns the archive at a place that a user names.
func (a *app) openArchive(place string) (archive.Store, error) {
	if place == "" {
		return nil, usagef("the place of the archive must not be empty").
			hinted("give a directory, or s3://BUCKET/PREFIX")
	}
	if !strings.HasPrefix(place, bucket.Scheme) {
		return archive.Directory(place), nil
	}
	b, err := bucket.Open(place, a.getenv)
	if err != nil {
		return nil, usagef("%s", err)
	}
	return b, nil
}
