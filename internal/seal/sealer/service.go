package sealer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger/feed"
)

const (
	// sealEvery is the time between two searches for new events: with the sealing itself, a sealer is at most a second
	// behind.
	sealEvery = 400 * time.Millisecond
	// leaseTTL is the time after which another process replaces a sealer.
	leaseTTL   = 5 * time.Second
	leaseEvery = leaseTTL / 4
)

// Config configures a [Service].
type Config struct {
	// DB is the primary. Its login needs the roles archiver and relay. Required.
	DB *pgxpool.Pool
	// File is the content of the file of settings.
	File File
	// Publish publishes a text to a subject of NATS, and returns once the server has it. Required if File has a
	// subject.
	Publish func(ctx context.Context, subject string, text []byte) error
	// Open opens a place in an object store. Required if File has one.
	Open func(place string) (seal.Objects, error)
	// Logger receives errors. Default: [slog.Default].
	Logger *slog.Logger
	// Describe returns the text of an error for the log, and its cure. Default: the text of the error.
	Describe func(error) (text, cure string)
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("sealer: DB is required"))
	}
	if c.File.Subject != "" && c.Publish == nil {
		faults = append(faults, errors.New("sealer: Publish is required for a subject"))
	}
	if c.File.isRemote() && c.Open == nil {
		faults = append(faults, errors.New("sealer: Open is required for a directory in an object store"))
	}
	return errors.Join(append(faults, c.File.Validate())...)
}

// Service seals, signs and publishes, see the package comment.
type Service struct {
	config    Config
	sealer    *seal.Sealer
	publisher *publisher
	holder    string
	heldAt    atomic.Int64 // when the lease was last taken, in nanoseconds since 1970; 0: it is not held
}

// New returns a service. It reads the key.
func New(c Config) (*Service, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Describe == nil {
		c.Describe = func(err error) (text, cure string) { return err.Error(), "" }
	}
	s := &Service{config: c, sealer: seal.NewSealer(c.DB), holder: rand.Text()}
	var err error
	if s.publisher, err = newPublisher(c); err != nil {
		return nil, fmt.Errorf("sealer: %w", err)
	}
	return s, nil
}

// Run seals and publishes until ctx is done, and then returns nil. It retries through outages. It returns an error for
// which IsRefusal of package ledger/feed is true.
func (s *Service) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	run := func(name string, step func(context.Context) (time.Duration, error)) {
		last := ""
		running.Go(func() {
			err := loop.Steps{
				Step: func(ctx context.Context) (time.Duration, error) {
					wait, err := step(ctx)
					if err == nil {
						last = ""
					}
					return wait, err
				},
				Stop: func(err error) error {
					if feed.IsRefusal(err) {
						return err
					}
					return nil
				},
				Failed: func(ctx context.Context, err error, _ time.Duration) {
					text, cure := s.config.Describe(err)
					if cure != "" {
						text += ": " + cure
					}
					if text != last {
						last = text
						s.config.Logger.ErrorContext(ctx, "the seal is delayed; trying again",
							"error", name+": "+text)
					}
				},
			}.Run(ctx)
			if err != nil {
				stop(err)
			}
		})
	}
	run("take the lease", s.renew)
	run("seal", s.seal)
	run("publish", s.publish)
	<-ctx.Done()
	running.Wait()
	s.yield(ctx)
	if err := context.Cause(ctx); feed.IsRefusal(err) {
		return err
	}
	return nil
}

// renew takes or extends the lease.
func (s *Service) renew(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	ok, err := lease.Sealer.Take(ctx, s.config.DB, s.holder, leaseTTL)
	if err != nil {
		return 0, err // the lease that was taken before counts until it ends
	}
	if ok {
		if s.heldAt.Swap(begun.UnixNano()) == 0 {
			s.config.Logger.InfoContext(ctx, "this process seals")
		}
	} else {
		s.heldAt.Store(0)
	}
	return leaseEvery, nil
}

// yield lets another process take the lease at once.
func (s *Service) yield(ctx context.Context) {
	if s.heldAt.Load() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTTL/2)
	defer cancel()
	if err := lease.Sealer.Yield(ctx, s.config.DB, s.holder); err != nil {
		s.config.Logger.WarnContext(ctx, "cannot release the sealer's lease; it expires in 5s", "error", err)
	}
}

func (s *Service) holds() bool {
	at := s.heldAt.Load()
	return at != 0 && time.Since(time.Unix(0, at)) < leaseTTL
}

// seal seals the new events, if this process holds the lease.
func (s *Service) seal(ctx context.Context) (time.Duration, error) {
	if !s.holds() {
		return sealEvery, nil
	}
	_, err := s.sealer.Seal(ctx)
	return sealEvery, err
}

// publish publishes the newest checkpoint, if this process holds the lease.
func (s *Service) publish(ctx context.Context) (time.Duration, error) {
	if !s.holds() {
		return sealEvery, nil
	}
	return s.config.File.every(), s.publisher.publish(ctx)
}
