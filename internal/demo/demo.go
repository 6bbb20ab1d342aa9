package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/migrations"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers/periodic"
	"github.com/taskledger/taskledger/workers/scheduler"
)

const (
	ackWait       = 5 * time.Second
	relayLease    = 2 * time.Second
	settleTimeout = 30 * time.Second
	database      = "shop"

	// How long the placing of orders takes; what is asked for is spread over it.
	chaosLasts = 34 * time.Second
	calmLasts  = 8 * time.Second

	faultHandler   = "worker.handler"   // in mid-handler
	faultCommitted = "worker.committed" // between commit and ack
)

// Config says how the demo runs.
type Config struct {
	Orders   int       // to be committed; at least 1
	Chaos    bool      // whether to make trouble
	Binaries string    // where PostgreSQL's are; empty: search
	Child    []string  // command line of this binary that calls RunChild with the role and the name behind it
	View     io.Writer // where progress is shown
	Terminal bool      // whether View is a terminal, to be redrawn
	// Started is told the addresses of the servers when they run, so that they can be attached
	// to; the function it returns is called when they end. Nil: nobody.
	Started func(databaseURL, natsURL string) (ended func(), err error)
	// Stay is called with the report while servers, relay, workers and projector run on, until it
	// returns. Nil: they end at once.
	Stay func(ctx context.Context, r Report)
}

// demo is a run.
type demo struct {
	config   Config
	log      *slog.Logger
	postgres *pgserver.Server
	nats     *natsserver.Server
	db       *pgxpool.Pool
	nc       *nats.Conn
	shop     *shop
	tally    tally
	children *children
	calendar calendar
	relay    *child
	workers  [2]*child
	wipes    atomic.Int64
}

// Run plays the shop and returns the proof. The error says that the demo could not be played;
// whether what it proves holds is Report.OK.
func Run(ctx context.Context, c Config) (Report, error) {
	begin := time.Now()
	d := &demo{config: c, log: slog.New(slog.NewTextHandler(c.View, &slog.HandlerOptions{Level: slog.LevelError}))}
	dir, err := dataDir()
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := d.startServers(ctx, dir); err != nil {
		return Report{}, errors.Join(err, d.stopServers())
	}
	r, err := d.play(ctx, begin)
	return r, errors.Join(err, d.stopServers())
}

// dataDir makes a directory that the server's user can enter.
func dataDir() (string, error) {
	dir, err := os.MkdirTemp("", "taskledger-demo-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}

func (d *demo) startServers(ctx context.Context, dir string) (err error) {
	d.postgres, err = pgserver.Start(ctx, pgserver.Config{Dir: filepath.Join(dir, "postgres"), Binaries: d.config.Binaries})
	if err != nil {
		return err
	}
	d.nats, err = natsserver.Start(natsserver.Config{Dir: filepath.Join(dir, "nats")})
	if err != nil {
		return err
	}
	if err := d.createDatabase(ctx); err != nil {
		return err
	}
	d.db, err = pgxpool.New(ctx, d.postgres.URL(database))
	if err != nil {
		return err
	}
	if _, err := d.db.Exec(ctx, shopSQL); err != nil {
		return fmt.Errorf("create the shop: %w", err)
	}
	d.nc, err = nats.Connect(d.nats.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	return err
}

func (d *demo) createDatabase(ctx context.Context) error {
	admin, err := pgxpool.New(ctx, d.postgres.URL("postgres"))
	if err != nil {
		return err
	}
	defer admin.Close()
	if _, err := admin.Exec(ctx, "create database "+database); err != nil {
		return err
	}
	return migrations.Up(ctx, d.postgres.URL(database))
}

func (d *demo) stopServers() error {
	var errs []error
	if d.nc != nil {
		d.nc.Close()
	}
	if d.db != nil {
		d.db.Close()
	}
	if d.nats != nil {
		errs = append(errs, d.nats.Close())
	}
	if d.postgres != nil {
		errs = append(errs, d.postgres.Close())
	}
	return errors.Join(errs...)
}

// play runs the shop with its relay, workers and projector until every order has its coupon, and
// as long as it shall stay.
func (d *demo) play(ctx context.Context, begin time.Time) (r Report, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lasts := calmLasts
	if d.config.Chaos {
		lasts = chaosLasts
	}
	d.shop = &shop{db: d.db, orders: d.config.Orders, pace: max(lasts/time.Duration(d.config.Orders), 50*time.Microsecond)}
	d.children = &children{command: d.config.Child, log: d.log, tally: &d.tally, environ: []string{
		databaseVariable + "=" + d.postgres.URL(database), natsVariable + "=" + d.nats.URL(),
	}}
	defer d.children.stop()
	if err := d.startChildren(ctx); err != nil {
		return r, err
	}
	projected, err := d.startProjector(ctx, cancel)
	if err != nil {
		return r, err
	}
	defer func() { cancel(nil); <-projected }()
	scheduled, err := d.startScheduler(ctx, cancel)
	if err != nil {
		return r, err
	}
	defer func() { cancel(nil); <-scheduled }()

	counting, err := d.openTill(ctx, cancel)
	if err != nil {
		return r, err
	}
	defer func() { cancel(nil); <-counting }()

	stopView := d.show(ctx)
	defer stopView()
	troubled := make(chan error, 1)
	go func() {
		begin := d.calendar.begin("starting")
		err := d.settle(ctx)
		d.calendar.end("", begin)
		if err == nil && d.config.Chaos {
			err = d.makeTrouble(ctx)
		}
		troubled <- err
	}()
	if err := d.shop.run(ctx); err != nil {
		return r, fmt.Errorf("place orders: %w", err)
	}
	if err := <-troubled; err != nil {
		return r, err
	}
	if err := d.settle(ctx); err != nil {
		return r, err
	}
	if err := d.closeTill(ctx); err != nil {
		return r, err
	}
	if err := d.awaitProjection(ctx); err != nil {
		return r, err
	}
	stopView()
	if r, err = d.prove(ctx); err != nil {
		return r, err
	}
	r.Seconds = tenths(time.Since(begin).Seconds())
	return r, d.stay(ctx, r)
}

// stay lets everything run on until the caller has had enough.
func (d *demo) stay(ctx context.Context, r Report) error {
	if d.config.Stay == nil {
		return nil
	}
	if d.config.Started != nil {
		ended, err := d.config.Started(d.postgres.URL(database), d.nats.URL())
		if err != nil {
			return err
		}
		defer ended()
	}
	if err := periodic.Resume(ctx, d.db, tillSchedule.Name, ""); err != nil {
		return err
	}
	d.config.Stay(ctx, r)
	return nil
}

func (d *demo) startChildren(ctx context.Context) (err error) {
	if d.relay, err = d.children.start(ctx, "relay", "relay-1"); err != nil {
		return err
	}
	for i := range d.workers {
		if d.workers[i], err = d.children.start(ctx, "worker", fmt.Sprintf("worker-%d", i+1)); err != nil {
			return err
		}
	}
	return nil
}

// startProjector runs the projector until ctx is done; the channel closes when it has ended.
func (d *demo) startProjector(ctx context.Context, fail context.CancelCauseFunc) (<-chan struct{}, error) {
	p, err := projector.New(projector.Config{DB: d.db, Logger: d.log})
	if err != nil {
		return nil, err
	}
	return start(ctx, p.Run, fail), nil
}

// startScheduler runs the scheduler, which releases what failed, in the same way.
func (d *demo) startScheduler(ctx context.Context, fail context.CancelCauseFunc) (<-chan struct{}, error) {
	s, err := scheduler.New(scheduler.Config{DB: d.db, Logger: d.log})
	if err != nil {
		return nil, err
	}
	return start(ctx, s.Run, fail), nil
}

// start runs something until ctx is done; the channel closes when it has ended.
func start(ctx context.Context, run func(context.Context) error, fail context.CancelCauseFunc) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := run(ctx); err != nil {
			fail(err)
		}
	}()
	return ended
}

func (d *demo) awaitProjection(ctx context.Context) error {
	deadline := time.Now().Add(settleTimeout)
	for {
		lag, err := projector.ReadLag(ctx, d.db)
		if err != nil {
			return err
		}
		if lag.Events == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the projection is still %d events behind after %s", lag.Events, settleTimeout)
		}
		if err := loop.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}
