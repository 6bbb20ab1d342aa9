package webhooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// Config configures a [Service].
type Config struct {
	DB   *pgxpool.Pool // the primary database, with the roles subscriber, producer and worker. Required.
	NATS *nats.Conn    // with the rights of a worker, see workers.Config. Required.
	File File          // the receivers. Required.
	// Archive contains the events that the archive has removed, see outbox.Subscription. Default: none, and a delivery
	// of such an event is buried.
	Archive feed.Archive
	// Logger logs outages and failed subscribers. Default: [slog.Default].
	Logger *slog.Logger
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("DB is required"))
	}
	if c.NATS == nil {
		faults = append(faults, errors.New("NATS is required"))
	}
	if err := c.File.Validate(); err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return fmt.Errorf("webhook: invalid Config: %w", errors.Join(faults...))
	}
	return nil
}

// Service sends events to the receivers of a file. Any number of processes may run with the same file.
type Service struct {
	config Config
	source atomic.Pointer[string] // the id of the ledger, once it is known
}

// New returns a service, which Run runs. It returns the error of [Config.Validate].
func New(c Config) (*Service, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Service{config: c}, nil
}

// Run works until ctx is done, and then returns nil. It retries through outages. A service runs once.
//
// Receivers are independent: if a receiver's subscriber must not continue, Run logs the reason once and continues with
// the others. It starts the subscriber again every 5 s. While Run works, it does not recreate a subscriber that an
// operator has removed.
//
// It returns the errors of [workers.Pool.Run].
func (s *Service) Run(ctx context.Context) error {
	pool, err := workers.New(workers.Config{DB: s.config.DB, NATS: s.config.NATS, Logger: s.config.Logger})
	if err != nil {
		return err
	}
	var all []*deliverer
	for _, r := range s.config.File.Receivers {
		d, err := s.newDeliverer(r.withDefaults())
		if err != nil {
			return err
		}
		kind := &workers.KindConfig{Slots: d.Slots, Timeout: time.Duration(d.Timeout) + grace, Retry: *d.Retry}
		if err := pool.Register(workers.Handle(d.kind, d.deliver, kind)); err != nil {
			return err
		}
		all = append(all, d)
	}
	ctx, stop := context.WithCancel(ctx)
	var subscribers sync.WaitGroup
	for _, d := range all {
		subscribers.Go(func() { d.keepSubscribed(ctx) })
	}
	err = pool.Run(ctx)
	stop()
	subscribers.Wait()
	return err
}

// keepSubscribed runs the subscriber of the receiver until ctx is done.
func (d *deliverer) keepSubscribed(ctx context.Context) {
	log := d.service.config.Logger.With("receiver", d.Name)
	isRemoved := false
	loop.Keep(ctx, func(ctx context.Context) error {
		if isRemoved { // until an operator makes it again
			_, err := subscribers.Read(ctx, d.service.config.DB, Subscriber(d.Name))
			if errors.Is(err, outbox.ErrUnknownSubscriber) {
				err = outbox.ErrSubscriberRemoved
			}
			if err != nil {
				return err
			}
		}
		err := outbox.Subscribe(ctx, d.subscription())
		isRemoved = errors.Is(err, outbox.ErrSubscriberRemoved)
		return err
	}, func(err error) {
		if isRemoved {
			err = fmt.Errorf("%w: take the receiver out of the file, or: taskledger seek subscriber %s --now", err,
				Subscriber(d.Name))
		}
		log.ErrorContext(ctx, "a receiver gets no events, the others do; it is started again every 5s", "error", err)
	})
}

// grace is the time of an attempt in addition to its request.
const grace = 10 * time.Second

// deliverer is a receiver at work.
type deliverer struct {
	Receiver
	service *Service
	kind    ledger.TypedKind[delivery]
	sender  *sender
}

// delivery is the args of a delivery: the event, which the ledger holds.
type delivery struct {
	Kind     ledger.Kind     `json:"kind"`
	BizID    ledger.BizID    `json:"biz_id"`
	Version  ledger.Version  `json:"version"`
	Position ledger.Position `json:"position"`
}

func (s *Service) newDeliverer(r Receiver) (*deliverer, error) {
	kind, err := ledger.NewKind[delivery](Kind(r.Name))
	if err != nil {
		return nil, err
	}
	return &deliverer{Receiver: r, service: s, kind: kind, sender: r.sender(r.Slots)}, nil
}

func (d *deliverer) subscription() outbox.Subscription {
	from := outbox.StartNow()
	if d.FromBeginning {
		from = outbox.Start{}
	}
	return outbox.Subscription{
		DB: d.service.config.DB, Name: Subscriber(d.Name), From: from, Kinds: d.Kinds, Types: d.Types,
		Archive: d.service.config.Archive, Logger: d.service.config.Logger,
		Handle: func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error { return d.enqueue(ctx, tx, events) },
	}
}
