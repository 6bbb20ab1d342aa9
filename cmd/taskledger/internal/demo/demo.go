package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/migrations"
	"github.com/taskledger/taskledger/projector"
)

const (
	leaseTTL        = 5 * time.Second
	relayLease      = 2 * time.Second
	recoveryTimeout = 30 * time.Second
	database        = "shop"

	// The orders are placed at an even rate over this time.
	chaosDuration = 34 * time.Second
	calmDuration  = 8 * time.Second

	faultHandler   = "worker.handler"   // while the handler runs
	faultCommitted = "worker.committed" // between commit and report
)

// Config configures a run of the demo.
type Config struct {
	Orders   int    // number of orders to commit, at least 1
	Chaos    bool   // whether to make trouble
	Binaries string // directory of PostgreSQL's binaries. Default: search.
	// Fetch returns that directory where PostgreSQL is not installed. Default: Run fails.
	Fetch    func(context.Context) (dir string, err error)
	Child    []string  // command line that calls [RunChild] with two more arguments: role and name
	View     io.Writer // receives the progress
	Terminal bool      // whether View is a terminal, on which the progress is redrawn

	// Started is called with the addresses of the running servers, after the proof and before
	// Stay. Run calls the function that it returns before it stops the servers. Default: none.
	Started func(databaseURL string, natsURLs map[string]string) (stopping func(), err error)
	// Stay is called with the report. Servers, relay, workers and projector run until it returns.
	// Default: they stop after the proof.
	Stay func(ctx context.Context, r Report)
}

// demo is one run.
type demo struct {
	config   Config
	log      *slog.Logger
	postgres *pgserver.Server
	nats     *natsserver.Server
	natsURLs map[string]string // by user
	db       *pgxpool.Pool
	nc       *nats.Conn
	shop     *shop
	counters counters
	children *children
	troubles troubleLog
	relay    *child
	workers  [2]*child
	wipes    atomic.Int64
}

// Run runs the demo and returns its proof. Report.OK is whether the proof holds. An error means
// that there is no proof.
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

// dataDir makes a directory that the user of the PostgreSQL server can enter.
func dataDir() (string, error) {
	dir, err := os.MkdirTemp("", "taskledger-demo-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}

func (d *demo) startServers(ctx context.Context, dir string) (err error) {
	d.postgres, err = pgserver.Start(ctx, pgserver.Config{
		Dir: filepath.Join(dir, "postgres"), Binaries: d.config.Binaries, Fetch: d.config.Fetch,
	})
	if err != nil {
		return err
	}
	accounts, passwords := natsconfig.Own(nil)
	d.nats, err = natsserver.Start(natsserver.Config{Dir: filepath.Join(dir, "nats"), Accounts: accounts})
	if err != nil {
		return err
	}
	d.natsURLs = passwords.URLs(d.nats.Host())
	if err := d.createDatabase(ctx); err != nil {
		return err
	}
	d.db, err = pgxpool.New(ctx, d.postgres.URL(database))
	if err != nil {
		return err
	}
	if _, err := d.db.Exec(ctx, shopSQL); err != nil {
		return fmt.Errorf("create the shop's tables: %w", err)
	}
	d.nc, err = nats.Connect(d.natsURLs[natsconfig.Admin], nats.MaxReconnects(-1),
		nats.ReconnectWait(100*time.Millisecond))
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

// play runs the shop with its relay, workers and projector until every order has a coupon, then proves it. It returns
// after Config.Stay.
func (d *demo) play(ctx context.Context, begin time.Time) (r Report, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.shop = &shop{db: d.db, orders: d.config.Orders, pace: d.config.pace()}
	d.children = &children{command: d.config.Child, log: d.log, counters: &d.counters, environ: []string{
		databaseVariable + "=" + d.postgres.URL(database),
	}, natsURLs: d.natsURLs}
	defer d.children.stop()
	if err := d.startChildren(ctx); err != nil {
		return r, err
	}
	stop, err := d.startServices(ctx, cancel)
	defer stop()
	if err != nil {
		return r, err
	}
	stopView := d.show(ctx)
	defer stopView()
	if err := d.sell(ctx); err != nil {
		return r, err
	}
	stopView()
	if r, err = d.prove(ctx); err != nil {
		return r, err
	}
	r.Seconds = tenths(time.Since(begin).Seconds())
	return r, d.stay(ctx, r)
}

// pace returns the time between two orders.
func (c Config) pace() time.Duration {
	duration := calmDuration
	if c.Chaos {
		duration = chaosDuration
	}
	return max(duration/time.Duration(c.Orders), 50*time.Microsecond)
}

// sell places all orders and makes trouble meanwhile. It returns when every order has a coupon and the projection has
// caught up.
func (d *demo) sell(ctx context.Context) error {
	troubles := make(chan error, 1)
	go func() {
		begin := d.troubles.begin("starting")
		err := d.awaitRecovery(ctx)
		d.troubles.end("", begin)
		if err == nil && d.config.Chaos {
			err = d.makeTrouble(ctx)
		}
		troubles <- err
	}()
	if err := d.shop.run(ctx); err != nil {
		return fmt.Errorf("place orders: %w", err)
	}
	if err := <-troubles; err != nil {
		return err
	}
	if err := d.awaitRecovery(ctx); err != nil {
		return err
	}
	if err := d.finishTill(ctx); err != nil {
		return err
	}
	return d.awaitProjection(ctx)
}

// stay keeps everything running until Config.Stay returns.
func (d *demo) stay(ctx context.Context, r Report) error {
	if d.config.Stay == nil {
		return nil
	}
	if d.config.Started != nil {
		stopping, err := d.config.Started(d.postgres.URL(database), d.natsURLs)
		if err != nil {
			return err
		}
		defer stopping()
	}
	if err := periodic.Resume(ctx, d.db, tillSchedule.Name, "", ""); err != nil {
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

// startServices runs the projector, the scheduler and the runner of the periodic task. It calls fail
// with the error of a service that fails. The returned function stops all of them and waits.
func (d *demo) startServices(ctx context.Context, fail context.CancelCauseFunc) (stop func(), err error) {
	var services sync.WaitGroup
	stop = func() { fail(nil); services.Wait() }
	start := func(run func(context.Context) error) {
		services.Go(func() {
			if err := run(ctx); err != nil {
				fail(err)
			}
		})
	}
	p, err := projector.New(projector.Config{DB: d.db, Logger: d.log})
	if err != nil {
		return stop, err
	}
	start(p.Run)
	s, err := scheduler.New(scheduler.Config{DB: d.db, Logger: d.log})
	if err != nil {
		return stop, err
	}
	start(s.Run)
	if err := d.storeTill(ctx); err != nil {
		return stop, err
	}
	start(func(ctx context.Context) error { return periodic.Run(ctx, d.db, d.log) })
	return stop, nil
}

func (d *demo) awaitProjection(ctx context.Context) error {
	deadline := time.Now().Add(recoveryTimeout)
	for {
		lag, err := projection.ReadLag(ctx, d.db)
		if err != nil {
			return err
		}
		if lag.Events == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the projection is still %d events behind after %s", lag.Events, recoveryTimeout)
		}
		if err := loop.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}
