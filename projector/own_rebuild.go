package projector

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/rebuild"
)

// RebuildOptions configures [Rebuild] and [RebuildTasks]. Nil is the default of every field.
type RebuildOptions = rebuild.Options

// Rebuild builds the tables of a projection from the first event in a separate schema, and replaces the tables in use
// when it has caught up. Runners may work meanwhile, and readers read the old tables until the new ones are complete.
// Rebuild recreates views that use the tables, and keeps rights on the tables. It commits after each page. If it is
// killed, the next call continues, or begins again if the projection has changed.
//
// If several calls run at a time, one works and the others return [feed.ErrSuperseded]. So does a call while a program
// of a higher version builds its tables. Other errors: [*ApplyError], [*VersionError], [*TablesError],
// [ErrUnknownProjection], [ledger.ErrNotMigrated].
func Rebuild(ctx context.Context, db *pgxpool.Pool, p Projection, o *RebuildOptions) error {
	return rebuildOwn(ctx, db, p, "", o)
}

func rebuildOwn(ctx context.Context, db *pgxpool.Pool, p Projection, actor string, o *RebuildOptions) error {
	if err := p.Validate(); err != nil {
		return err
	}
	have, err := ReadProjection(ctx, db, p.Name)
	switch {
	case err != nil:
		return err
	case have.Version > p.Version:
		return &VersionError{Of: p.Name, Tables: have.Version, Program: p.Version}
	}
	builder := reader(buildOf(p.Name))
	b := &rebuild.Build{
		DB: db, Options: o.WithDefaults(), Operation: rebuildOf(p.Name, Act{Actor: actor}),
		Name: p.Name, Reader: reader(p.Name), Builder: builder, Schema: rebuild.Schema(p.Name), InUse: p.Name,
		Mark:  rebuild.Mark{Version: p.Version, Shape: p.shape()},
		Parks: p.OnFailure == Park,
		Target: &ownBuild{pool: db, ownTables: ownTables{
			Projection: p, schema: rebuild.Schema(p.Name), parkedAs: buildOf(p.Name), db: db,
			invalidate: func(ctx context.Context) error { return feed.Forget(ctx, db, builder) },
		}},
	}
	return b.Run(ctx)
}

// runBuilds builds the tables of the projection when their version is older, and executes operators' requests.
func (o *own) runBuilds(ctx context.Context) error {
	return loop.Steps{
		Step: func(ctx context.Context) (time.Duration, error) {
			done, err := o.buildIfAsked(ctx)
			switch {
			case errors.Is(err, feed.ErrSuperseded):
				return loop.Jitter(o.config.Standby), nil
			case err != nil && ctx.Err() == nil && o.stop(err) == nil:
				o.log.ErrorContext(ctx, "the build of the projection failed", "error", err)
				return loop.Jitter(o.config.RetryFailed), nil
			case done:
				return 0, nil
			}
			return loop.Jitter(requestsEvery), err
		},
		Stop: o.stop,
	}.Run(ctx)
}

// buildIfAsked reports whether it had any work.
func (o *own) buildIfAsked(ctx context.Context) (bool, error) {
	have, found, err := rebuild.Read(ctx, o.db, o.Name)
	if err != nil || !found || have.Version > o.Version {
		return false, err
	}
	var work string
	switch {
	case have.Version < o.Version:
		work = WorkRebuild
	case have.Shape != o.shape():
		return false, nil
	default:
		work = have.Wanted
	}
	options := &RebuildOptions{
		Progress: rebuild.ShowProgress(ctx, o.db, o.Name, work, o.log), PageSize: o.config.PageSize, Logger: o.log,
	}
	var result any
	switch work {
	case WorkRebuild:
		result = struct{}{}
		err = rebuildOwn(ctx, o.config.DB, o.Projection, runnerActor, options)
	case WorkVerify:
		result, err = VerifyProjection(ctx, o.config.DB, o.Projection, options)
	default:
		return false, nil
	}
	return true, o.endWork(ctx, work, result, err)
}

// endWork records the end of a piece of work, and the event that stops it.
func (o *own) endWork(ctx context.Context, work string, result any, failure error) error {
	if ctx.Err() != nil || errors.Is(failure, feed.ErrSuperseded) || rebuild.IsOutage(failure) {
		return failure
	}
	var apply *ApplyError
	if errors.As(failure, &apply) {
		if err := rebuild.RecordFailure(ctx, o.db, o.Name, apply.Event, apply.Err); err != nil {
			return err
		}
	}
	record := rebuildOf(o.Name, Act{Actor: runnerActor})
	if err := rebuild.RecordEnd(ctx, o.config.DB, o.Name, work, result, failure, record); err != nil {
		return err
	}
	return failure
}
