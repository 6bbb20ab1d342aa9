package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
)

// StreamConfig is what may be chosen about the stream when the relay makes it.
type StreamConfig = stream.Config

// Config says what a relay works with. Its zero value lacks the two connections.
type Config struct {
	// DB is the ledger's database, the primary. Required. The relay uses up to three
	// connections at once.
	DB *pgxpool.Pool
	// NATS is the connection to publish on. Required. It must have nats.ReconnectBufSize(-1);
	// see [Connect].
	NATS *nats.Conn
	// Stream says how the stream is made if it is missing. One that exists is never changed.
	Stream StreamConfig

	// Name is what people see of this relay. Default: host and process id.
	Name string
	// LeaseTTL is after how long without a sign of life another relay takes over. Default 5 s.
	LeaseTTL time.Duration
	// CheckEvery is how often the stream is looked at for losses. Default 5 s.
	CheckEvery time.Duration
	// AckTimeout is how long the acknowledgements of a page may take. Default 5 s.
	AckTimeout time.Duration

	// Logger hears what a person should know. Default: discard.
	Logger *slog.Logger
	// Hooks are called in this order; nil is skipped. Default: none.
	Hooks []Hook

	pageSize int // for tests; default stream.MaxPage
}

// Defaults of [Config].
const (
	DefaultLeaseTTL   = 5 * time.Second
	DefaultCheckEvery = 5 * time.Second
	DefaultAckTimeout = 5 * time.Second
)

// Validate reports every fault at once.
func (c Config) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("DB is missing"))
	}
	if c.NATS == nil {
		faults = append(faults, errors.New("NATS is missing"))
	} else if c.NATS.Opts.ReconnectBufSize >= 0 {
		faults = append(faults, stream.ErrBuffered)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"LeaseTTL", c.LeaseTTL}, {"CheckEvery", c.CheckEvery}, {"AckTimeout", c.AckTimeout}} {
		if d.value != 0 && d.value < 10*time.Millisecond {
			faults = append(faults, fmt.Errorf("%s must be at least 10ms, not %s", d.name, d.value))
		}
	}
	if err := c.Stream.Validate(); err != nil {
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("relay configuration: %w", err)
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = hostAndProcess()
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = DefaultLeaseTTL
	}
	if c.CheckEvery == 0 {
		c.CheckEvery = DefaultCheckEvery
	}
	if c.AckTimeout == 0 {
		c.AckTimeout = DefaultAckTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Hooks = slices.DeleteFunc(slices.Clone(c.Hooks), func(h Hook) bool { return h == nil })
	if c.pageSize == 0 {
		c.pageSize = stream.MaxPage
	}
	return c
}

// Connect connects to NATS as a relay needs it: for ever, and without a buffer for the time
// the server is away.
func Connect(url string, options ...nats.Option) (*nats.Conn, error) {
	return stream.Connect(url, options...)
}
