package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/stream"
)

// StreamConfig holds the settings of a stream that the relay creates.
type StreamConfig = stream.Config

// Config configures a relay.
type Config struct {
	// DB is the ledger's database, the primary. Required. The relay uses up to three connections at a
	// time, and takes one more out of the pool while it holds the lease.
	DB *pgxpool.Pool
	// NATS is the connection to publish on. Required. It must have nats.ReconnectBufSize(-1), as connections of
	// [Connect] do.
	NATS *nats.Conn
	// Stream holds the settings with which the relay creates a missing stream. On an existing stream it only raises
	// MaxBytes.
	Stream StreamConfig

	// Name identifies this relay in the lease and in logs. Default: host and process id.
	Name string
	// LeaseTTL is how long after the last renewal another relay takes over from a relay that hangs. A relay whose
	// process has ended is replaced within a second, except behind a pooler. Default: 5 s; at least 10 ms.
	LeaseTTL time.Duration
	// CheckEvery is the time between two checks of the stream for losses. Default: 5 s; at least 10 ms.
	CheckEvery time.Duration
	// AckTimeout bounds the time for all acknowledgements of a page. Default: 5 s; at least 10 ms.
	AckTimeout time.Duration

	// Logger logs warnings and errors for the operator. Default: [slog.Default].
	Logger *slog.Logger
	// Hooks are called in this order. Default: none.
	Hooks []Hook

	pageSize int // Default: stream.MaxPage. Tests change it.
}

// Defaults of [Config].
const (
	defaultLeaseTTL   = 5 * time.Second
	defaultCheckEvery = 5 * time.Second
	defaultAckTimeout = 5 * time.Second
)

// minInterval is the least value of the durations in [Config].
const minInterval = MinInterval

// MinInterval is the least value of the durations in [Config], except 0.
const MinInterval = 10 * time.Millisecond

// Validate reports every fault at once.
func (c Config) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("DB is required"))
	}
	if c.NATS == nil {
		faults = append(faults, errors.New("NATS is required"))
	} else if c.NATS.Opts.ReconnectBufSize >= 0 {
		faults = append(faults, stream.ErrBuffered)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{name: "LeaseTTL", value: c.LeaseTTL},
		{name: "CheckEvery", value: c.CheckEvery},
		{name: "AckTimeout", value: c.AckTimeout},
	} {
		if d.value != 0 && d.value < minInterval {
			faults = append(faults, fmt.Errorf("%s must be at least %s, got %s", d.name, minInterval, d.value))
		}
	}
	if err := c.Stream.Validate(); err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return fmt.Errorf("outbox: invalid Config: %w", errors.Join(faults...))
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = relays.HostAndProcess()
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = defaultLeaseTTL
	}
	if c.CheckEvery == 0 {
		c.CheckEvery = defaultCheckEvery
	}
	if c.AckTimeout == 0 {
		c.AckTimeout = defaultAckTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.pageSize == 0 {
		c.pageSize = stream.MaxPage
	}
	return c
}

// Connect connects to NATS as a relay requires: the connection reconnects forever, and does not buffer
// while the server is unavailable.
func Connect(url string, options ...nats.Option) (*nats.Conn, error) {
	return stream.Connect(url, options...)
}

// NATSPrefix returns the option of a connection for one of several ledgers that share a NATS account. Its subjects
// begin with the prefix and a dot, its streams with the prefix and an underscore: shop.ledger.>, shop_LEDGER. All
// connections of a ledger need the same prefix, and no other ledger of the account may use it. It has 1 to 32
// lower-case letters, digits, - and _, and begins with a letter. "" is no prefix, for a ledger with its own account.
//
// The prefix is part of the connection's inboxes, so no option may set another prefix of inboxes. Connecting returns a
// [*ledger.InvalidError] if the prefix is invalid.
func NATSPrefix(prefix string) nats.Option { return stream.Prefix(prefix).Option() }
