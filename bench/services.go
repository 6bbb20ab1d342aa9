package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/riverqueue/river"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

// The roles of child processes at an even rate.

// newServe makes the services of the command serve.
func newServe(s serviceSettings, db *pgxpool.Pool, nc *nats.Conn, _ *tally) (func(context.Context) error, error) {
	relay, err1 := outbox.New(outbox.Config{DB: db, NATS: nc, Stream: streamOf(s.Replicas)})
	project, err2 := projector.New(projector.Config{DB: db})
	timers, err3 := scheduler.New(scheduler.Config{DB: db})
	give, err4 := dispatcher.New(dispatcher.Config{DB: db, NATS: nc})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	schedules := func(ctx context.Context) error { return periodic.Run(ctx, db, nil) }
	parts := []func(context.Context) error{relay.Run, project.Run, timers.Run, schedules, give.Run}
	for i := range s.Subscribers {
		parts = append(parts, subscribeToNothing(db, i))
	}
	return together(parts...), nil
}

// together returns a function that runs all parts until ctx is done or one of them ends. It returns the first error.
func together(parts ...func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		return concurrently(len(parts), func(i int) error {
			defer cancel()
			return parts[i](ctx)
		})
	}
}

// subscribeToNothing returns a subscriber whose filter matches no event.
func subscribeToNothing(db *pgxpool.Pool, n int) func(context.Context) error {
	return func(ctx context.Context) error {
		return outbox.Subscribe(ctx, outbox.Subscription{
			DB: db, Name: fmt.Sprintf("nothing-%d", n), Kinds: []ledger.Kind{"bench.nothing"},
			Receive: func(context.Context, []ledger.Event) error { return nil },
		})
	}
}

func newEverydayWorker(s serviceSettings, db *pgxpool.Pool, nc *nats.Conn, starts *tally,
) (func(context.Context) error, error) {
	p, err := workers.New(workers.Config{DB: db, NATS: nc})
	if err != nil {
		return nil, err
	}
	handler := func(ctx context.Context, job *workers.Job, _ json.RawMessage) error {
		starts.start(string(job.BizID))
		return millisecond(ctx)
	}
	for i := range s.OtherKinds {
		other := ledger.MustKind[json.RawMessage](ledger.Kind(fmt.Sprintf("bench.other-%d", i)))
		if err := p.Register(workers.Handle(other, handler, nil)); err != nil {
			return nil, err
		}
	}
	return p.Run, p.Register(workers.Handle(kind, handler, &workers.KindConfig{Slots: s.Slots}))
}

// newEverydayAll makes services and worker for one process.
func newEverydayAll(s serviceSettings, db *pgxpool.Pool, nc *nats.Conn, starts *tally,
) (func(context.Context) error, error) {
	serve, err1 := newServe(s, db, nc, starts)
	work, err2 := newEverydayWorker(s, db, nc, starts)
	return together(serve, work), errors.Join(err1, err2)
}

func runServe(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	return runService(ctx, raw, 16, ready, everydayReports, newServe)
}

func runEverydayWorker(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	return runService(ctx, raw, 16, ready, everydayReports, newEverydayWorker)
}

func runEverydayAll(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	return runService(ctx, raw, 32, ready, everydayReports, newEverydayAll)
}

// everydayReports is the interval in which these child processes report: their CPU counts.
const everydayReports = 500 * time.Millisecond

func newFloorServe(s serviceSettings, db *pgxpool.Pool, nc *nats.Conn, _ *tally) (func(context.Context) error, error) {
	f := &floor{db: db, nc: nc, pace: evenPace(s.Budget)}
	if err := f.ensureStream(context.Background()); err != nil {
		return nil, err
	}
	return ignoreCanceled(together(f.relay, f.project)), nil
}

func newFloorWorker(s serviceSettings, db *pgxpool.Pool, nc *nats.Conn, starts *tally,
) (func(context.Context) error, error) {
	f := &floor{db: db, nc: nc, pace: evenPace(s.Budget), handle: func(ctx context.Context, bizID string) {
		starts.start(bizID)
		_ = millisecond(ctx)
	}}
	return ignoreCanceled(f.work), nil
}

func runFloorServe(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	return runService(ctx, raw, 16, ready, everydayReports, newFloorServe)
}

func runFloorWorker(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	return runService(ctx, raw, 16, ready, everydayReports, newFloorWorker)
}

// riverSettings are the settings of a child process with River's client.
type riverSettings struct {
	DatabaseURL string `json:"database_url"`
	Pace        string `json:"pace"`
}

// riverSleep is a worker of everyday tasks.
type riverSleep struct {
	river.WorkerDefaults[riverArgs]
	starts *tally
}

func (w *riverSleep) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	w.starts.start(job.Args.BizID)
	return millisecond(ctx)
}

func runRiver(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	var s riverSettings
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	return reportCounts(ctx, ready, everydayReports, func(starts *tally) (func(context.Context) error, error) {
		c, err := pgxpool.ParseConfig(s.DatabaseURL)
		if err != nil {
			return nil, err
		}
		c.MaxConns = 16
		db, err := pgxpool.NewWithConfig(ctx, c)
		if err != nil {
			return nil, err
		}
		client, err := newRiver(db, 100, riverPaces[s.Pace], &riverSleep{starts: starts})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			defer db.Close()
			if err := client.Start(context.WithoutCancel(ctx)); err != nil {
				return err
			}
			<-ctx.Done()
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
			defer cancel()
			return client.StopAndCancel(stopping)
		}, nil
	})
}
