package workers

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/ledger"
)

// Defaults of [Config].
const (
	defaultLeaseTTL    = 30 * time.Second
	maxLeaseTTL        = 24 * time.Hour // policy of taskledger.lease
	defaultStopTimeout = 10 * time.Second
)

// minConns is the smallest connection pool of a worker: the reserved connections, and one for a handler's transaction.
const minConns = reservedConns + 1

// reservedConns are never given to handlers: reading heads, recording starts and outcomes, and renewing the lease
// must not wait for a handler.
const reservedConns = 3

// Config configures a [Pool].
type Config struct {
	// DB is the primary. Required. At most MaxConns - 3 ExactlyOnce handlers run at a time, however many slots their
	// kinds have, because each holds a connection. (pgxpool's default is 4, or one for each CPU: raise MaxConns.)
	// After each handler the connection's session is reset ([ledger.TxOptions].ResetSession). So set custom settings,
	// whose names contain a dot, in the address or on the login, not in AfterConnect.
	DB *pgxpool.Pool
	// NATS is the connection to the dispatcher. Required. It should never stop reconnecting:
	// nats.MaxReconnects(-1).
	NATS *nats.Conn
	// Name identifies this worker in events, logs and lists; a random suffix makes it unique. Default: <host>-<pid>.
	Name string
	// LeaseTTL is how long this worker may be unreachable before other workers may take over its tasks in flight. It is
	// the duration of the worker's lease, which is renewed three times as often. Use the same LeaseTTL for all workers
	// of a kind. Between 1 s and 24 h. Default: 30 s.
	LeaseTTL time.Duration
	// Slots is how many handlers of all kinds run at a time; kinds that wait for a slot take turns. [Pool.SetSlots]
	// changes it. Default: 0, as many as the kinds' Slots allow.
	Slots int
	// Shards are the shards whose tasks this worker takes. Workers of a kind may have different sets; tasks of a shard
	// that no worker takes wait. Default: all.
	Shards ledger.ShardSet
	// StopTimeout is how long Run lets handlers finish once its context is done. Then their contexts are cancelled,
	// and unfinished tasks are given back. While PostgreSQL does not answer, outcomes wait for another LeaseTTL; then
	// Run returns without them. Run returns within StopTimeout, LeaseTTL and 15 s after its context is done, and within
	// 5 s if nothing has begun. A handler that has not returned by then does not keep DB from closing, unless it is a
	// handler of database/sql or holds a connection that it has acquired itself. Default: 10 s.
	StopTimeout time.Duration
	// Logger receives warnings and errors. A message that repeats while a server is unavailable is logged at once and
	// then every 10 s, with a count. Default: [slog.Default].
	Logger *slog.Logger
	// Hooks are called around the attempts of all kinds, in this order. Default: disabled.
	Hooks []Hook
	// Middleware is called around the handlers of all kinds, outside of [KindConfig].Middleware. The first one is the
	// outermost; nil is skipped. Default: disabled.
	Middleware []Middleware
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("workers: DB is required"))
	} else if n := c.DB.Config().MaxConns; n < minConns {
		faults = append(faults, fmt.Errorf("workers: pgxpool.Config.MaxConns must be at least %d, got %d: "+
			"raise it (pool_max_conns in the URL)", minConns, n))
	}
	if c.NATS == nil {
		faults = append(faults, errors.New("workers: NATS is required"))
	}
	if len(c.Name) > 200 || !utf8.ValidString(c.Name) || strings.ContainsFunc(c.Name, unicode.IsControl) {
		faults = append(
			faults,
			fmt.Errorf("workers: Name must be at most 200 bytes of UTF-8 without control characters, "+
				"got %.60q", c.Name),
		)
	}
	if c.LeaseTTL != 0 && (c.LeaseTTL < time.Second || c.LeaseTTL > maxLeaseTTL) {
		faults = append(faults, fmt.Errorf("workers: LeaseTTL must be between 1s and 24h, got %s", c.LeaseTTL))
	}
	if c.Slots < 0 {
		faults = append(faults, fmt.Errorf("workers: Slots must be at least 0, got %d", c.Slots))
	}
	if c.StopTimeout < 0 {
		faults = append(faults, fmt.Errorf("workers: StopTimeout must be at least 0s, got %s", c.StopTimeout))
	}
	return errors.Join(faults...)
}

// withDefaults returns c with every zero replaced by its default.
func (c Config) withDefaults() Config {
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "worker"
		}
		c.Name = fmt.Sprintf("%.150s-%d", host, os.Getpid())
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = defaultLeaseTTL
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = defaultStopTimeout
	}
	if c.Shards == 0 {
		c.Shards = ledger.AllShards
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}
