package services

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/broker"
	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/seal/sealer"
	"github.com/taskledger/taskledger/ledger/feed"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
)

// Run runs all services of a ledger until ctx is done, and then returns nil: relay, projector, dispatcher,
// scheduler, schedules, alarms and the HTTP server. The command taskledger serve is this function. Any number of
// processes may run it: one relay, one projector and one dispatcher are active, and the others stand by.
//
// The services retry while PostgreSQL or NATS is unavailable. If a service must not continue, the others do. Run
// logs the reason once, and restarts the service every 5 s.
//
// It returns an error only before anything has started, if c is invalid.
func Run(ctx context.Context, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	c, server, err := c.withDefaults().ownServer()
	if err != nil {
		return err
	}
	reports := &reporter{config: c}
	defer reports.close()
	if c.SleepAfter > 0 {
		c.sleeper = newSleeper(ctx, c, server, reports)
	}
	services := []service{c.relayOrNone(), c.projector(), c.dispatcher(), c.scheduler(), c.periodic()}
	if c.Push != nil {
		push := func(ctx context.Context, _ *slog.Logger) error { return c.API.PushTasks(ctx, c.Push) }
		services = append(services, service{"push", push})
	}
	if c.Alarms != nil {
		services = append(services, c.alarms())
	}
	if c.Seal != nil {
		services = append(services, c.sealer())
	}
	if c.ArchiveAfter > 0 {
		services = append(services, c.archiver())
	}
	var web *service
	if c.Listener != nil {
		endpoints, err := c.http(reports)
		if err != nil {
			return err
		}
		web = &endpoints
	}
	if c.sleeper != nil {
		c.sleeper.run(ctx, services, web)
		return nil
	}
	if web != nil {
		services = append(services, *web)
	}
	return c.runBeside(ctx, server, services)
}

// runBeside runs services, and a NATS server that stops after them. server may be nil.
func (c Config) runBeside(ctx context.Context, server *broker.Server, services []service) error {
	if server == nil {
		c.runAll(ctx, services)
		return nil
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.keep(serving, service{"nats", func(ctx context.Context, _ *slog.Logger) error { return server.Run(ctx) }})
	}()
	c.runAll(ctx, services)
	stop()
	<-ended
	return nil
}

// clusterReplicas is how many members of a cluster store each message.
const clusterReplicas = 3

// ownServer returns the NATS server of this database, and c with connections to it; nil if c.NATS is set.
func (c Config) ownServer() (Config, *broker.Server, error) {
	if c.NATS != nil {
		return c, nil, nil
	}
	log := c.Logger.With("service", "nats")
	server, err := broker.New(broker.Config{
		DB: c.DB, Dir: c.Server.Dir, Listen: c.Server.Listen, Advertise: c.Server.Advertise,
		Peers: c.Server.Peers, ClusterListen: c.Server.ClusterListen, Logger: log,
	})
	if err != nil {
		return c, nil, err
	}
	c.NATS = func(options ...nats.Option) (*nats.Conn, error) {
		all := []nats.Option{nats.Name("taskledger"), nats.RetryOnFailedConnect(true)}
		return server.Connect(natsconfig.Relay, append(all, options...)...)
	}
	if len(c.Server.Peers) > 0 && c.Stream.Replicas == 0 {
		c.Stream.Replicas = clusterReplicas
	}
	c.awaitNATS = func(ctx context.Context) error { return natsclient.Await(ctx, c.DB, natsconfig.Relay) }
	c.RelayHooks = append(slices.Clone(c.RelayHooks), broker.NewRestart(server, log))
	return c, server, nil
}

func (c Config) relayOrNone() service {
	if !c.StreamOff {
		return c.relay()
	}
	// The record is repeated, because a relay of another process may have been alive.
	return service{"stream", func(ctx context.Context, log *slog.Logger) error {
		log.InfoContext(ctx, "the stream is off: no relay runs")
		for {
			if err := relays.TurnOff(ctx, c.DB); err != nil {
				return err
			}
			if loop.Sleep(ctx, offEvery) != nil {
				return nil
			}
		}
	}}
}

// offEvery is the time between two records that the stream is off.
const offEvery = 10 * time.Second

func (c Config) relay() service {
	return service{"relay", func(ctx context.Context, log *slog.Logger) error {
		if err := c.awaitNATS(ctx); err != nil {
			return err
		}
		nc, err := c.NATS(natsclient.Logging(c.Logger.With("service", "nats"), c.reason)...)
		if err != nil {
			return err
		}
		defer nc.Close()
		relay, err := outbox.New(outbox.Config{
			DB: c.DB, NATS: nc, Stream: c.Stream, LeaseTTL: c.LeaseTTL, AckTimeout: c.AckTimeout, Logger: log,
			Hooks: c.RelayHooks,
		})
		if err != nil {
			return err
		}
		return relay.Run(ctx)
	}}
}

func (c Config) dispatcher() service {
	return service{"dispatcher", func(ctx context.Context, log *slog.Logger) error {
		if err := c.awaitNATS(ctx); err != nil {
			return err
		}
		nc, err := c.NATS(nats.ErrorHandler(ignoreErrors))
		if err != nil {
			return err
		}
		defer nc.Close()
		d, err := dispatcher.New(dispatcher.Config{
			DB: c.DB, NATS: nc, Latency: c.Latency, Logger: log,
		})
		if err != nil {
			return err
		}
		return d.Run(ctx)
	}}
}

func (c Config) projector() service {
	return service{"projector", func(ctx context.Context, log *slog.Logger) error {
		p, err := projector.New(projector.Config{DB: c.DB, Logger: log})
		if err != nil {
			return err
		}
		return p.Run(ctx)
	}}
}

func (c Config) scheduler() service {
	return service{"scheduler", func(ctx context.Context, log *slog.Logger) error {
		s, err := scheduler.New(scheduler.Config{DB: c.DB, Logger: log})
		if err != nil {
			return err
		}
		return s.Run(ctx)
	}}
}

func (c Config) periodic() service {
	return service{"periodic", func(ctx context.Context, log *slog.Logger) error {
		return periodic.Run(ctx, c.DB, log)
	}}
}

func (c Config) archiver() service {
	return service{"archive", func(ctx context.Context, log *slog.Logger) error {
		config := archiver.Config{DB: c.DB, After: c.ArchiveAfter, Logger: log}
		if c.ArchiveTo != "" {
			store, err := openArchive(c.ArchiveTo, c.OpenObjects)
			if err != nil {
				return err
			}
			config.Files = archiver.In(c.DB, store, c.ArchiveTo)
		}
		s, err := archiver.New(config)
		if err != nil {
			return err
		}
		return s.Run(ctx)
	}}
}

// Archive returns the events of archived tasks, for a subscriber: see [outbox.Subscription]. place is the archive in
// which they are looked for, "" for where the ledger has recorded that they are. openObjects opens an object store; nil
// for none.
func Archive(place string, openObjects func(place string) (Objects, error)) feed.Archive {
	return archive.Source{Place: place, Open: func(place string) (archive.Store, error) {
		return openArchive(place, openObjects)
	}}
}

// openArchive opens the archive at a place.
func openArchive(place string, openObjects func(string) (Objects, error)) (archive.Store, error) {
	switch {
	case !strings.Contains(place, "://"):
		return archive.Directory(place), nil
	case openObjects == nil:
		return nil, errors.New("OpenObjects, which opens object stores, is not set")
	}
	return openObjects(place)
}

func (c Config) sealer() service {
	return service{"seal", func(ctx context.Context, log *slog.Logger) error {
		file, err := sealer.Parse(c.Seal)
		if err != nil {
			return err
		}
		config := sealer.Config{DB: c.DB, File: file, Logger: log, Describe: c.Describe}
		if c.OpenObjects != nil {
			config.Open = func(place string) (seal.Objects, error) { return c.OpenObjects(place) }
		}
		if file.Subject != "" {
			if err := c.awaitNATS(ctx); err != nil {
				return err
			}
			nc, err := c.NATS(nats.ErrorHandler(ignoreErrors))
			if err != nil {
				return err
			}
			defer nc.Close()
			config.Publish = natsclient.CheckpointPublisher(nc)
		}
		s, err := sealer.New(config)
		if err != nil {
			return err
		}
		return s.Run(ctx)
	}}
}

func (c Config) alarms() service {
	return service{"alarm", func(ctx context.Context, log *slog.Logger) error {
		file, err := alarm.Parse(c.Alarms)
		if err != nil {
			return err
		}
		config := alarm.Config{DB: c.DB, File: file, Logger: log}
		if s := c.sleeper; s != nil {
			config.Reported = func(begun time.Time) { s.reported.Store(&begun) }
		}
		w, err := alarm.New(config)
		if err != nil {
			return err
		}
		return w.Run(ctx)
	}}
}
