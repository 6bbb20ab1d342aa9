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
	DefaultAckWait     = 30 * time.Second
	DefaultStopTimeout = 10 * time.Second
)

// minConns is the smallest connection pool that a worker can live with: one connection for a
// handler's transaction beside the reserved ones.
const minConns = reservedConns + 1

// reservedConns are never given to handlers: reading heads, recording starts and outcomes, and
// renewing the lease must not wait for a handler.
const reservedConns = 3

// Config says how a [Pool] works.
type Config struct {
	// DB is the primary. Required. At most MaxConns - 3 ExactlyOnce handlers run at a time,
	// whatever the slots of their kinds: each holds a connection. (pgxpool's default is 4, or
	// one for each CPU: raise MaxConns.)
	DB *pgxpool.Pool
	// NATS is where the messages come from. Required. It should reconnect for ever:
	// nats.MaxReconnects(-1).
	NATS *nats.Conn
	// Name says to people which worker this is; what is added to it makes it unique.
	// Default: <host>-<pid>.
	Name string
	// AckWait is how long this worker may be unreachable before others may take over what it
	// has in hand: of its messages (heartbeats go out three times as often) and of its lease.
	// Default 30 s, at least 1 s. All workers of a kind should agree on it.
	AckWait time.Duration
	// Slots is how many handlers run at a time, of all kinds together; kinds that wait for one
	// take turns. [Pool.SetSlots] changes it. Default 0: as many as the kinds' Slots allow.
	Slots int
	// Shards are those whose tasks this worker takes. Workers of a kind have either the same ones,
	// and share their tasks, or others; if they overlap, the later worker is refused
	// ([*OverlapError]). A set that is neither one shard nor all of them costs the broker more for
	// each message. Default: all.
	Shards ledger.ShardSet
	// ShardGroups has the workers of a kind divide the shards among themselves, as they come and go:
	// in so many groups, each of which one worker has at a time. What a worker had that is gone,
	// others have within 10 s. All workers of a kind must agree on the number; up to a few times
	// as many as there will be workers is right. It has a price: one worker with all groups drains
	// a fifth to two fifths less than without (BenchmarkDrainShardGroups). Default 0: not divided.
	ShardGroups int
	// StopTimeout is how long Run lets handlers finish once its context is done; then their
	// contexts are cancelled and what is left is given back. If PostgreSQL says nothing meanwhile,
	// outcomes wait for it for AckWait, and then Run returns without them: StopTimeout, AckWait and
	// 15 s after its context was done at the latest, and 5 s after it if nothing has begun. Default
	// 10 s.
	StopTimeout time.Duration
	// Logger is told what people should know. What happens over and over, while a server is away, is
	// logged at once and then every 10 s, with how many times. Nil: nobody.
	Logger *slog.Logger
	// Hooks are called around the attempts of all kinds, in this order. Nil is skipped. Default: none.
	Hooks []Hook
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("workers: DB is required"))
	} else if n := c.DB.Config().MaxConns; n < minConns {
		faults = append(faults, fmt.Errorf("workers: the connection pool must allow at least %d connections, allows %d: raise pgxpool.Config.MaxConns (pool_max_conns in the URL)", minConns, n))
	}
	if c.NATS == nil {
		faults = append(faults, errors.New("workers: NATS is required"))
	}
	if len(c.Name) > 200 || !utf8.ValidString(c.Name) || strings.ContainsFunc(c.Name, unicode.IsControl) {
		faults = append(faults, errors.New("workers: Name must have at most 200 bytes of UTF-8 without control characters"))
	}
	if c.AckWait != 0 && c.AckWait < time.Second {
		faults = append(faults, fmt.Errorf("workers: AckWait must be at least 1s, is %s", c.AckWait))
	}
	if c.Slots < 0 {
		faults = append(faults, fmt.Errorf("workers: Slots must not be negative, is %d", c.Slots))
	}
	if c.ShardGroups < 0 || c.ShardGroups > ledger.Shards {
		faults = append(faults, fmt.Errorf("workers: ShardGroups must be 0 to %d, is %d", ledger.Shards, c.ShardGroups))
	}
	if c.ShardGroups != 0 && c.Shards != 0 {
		faults = append(faults, errors.New("workers: Shards are fixed, ShardGroups divides them: give one of them"))
	}
	if c.StopTimeout < 0 {
		faults = append(faults, fmt.Errorf("workers: StopTimeout must not be negative, is %s", c.StopTimeout))
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
	if c.AckWait == 0 {
		c.AckWait = DefaultAckWait
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = DefaultStopTimeout
	}
	if c.Shards == 0 {
		c.Shards = ledger.AllShards
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
