package taskledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/pgpool"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// Sizes of the connection pools of one process.
const (
	// ProducerConns is the size of [Client].DB: how many transactions can run at once.
	ProducerConns = 8
	// WorkerConns is how many connections a worker uses in addition to one per slot of its ExactlyOnce kinds.
	WorkerConns = 6
)

// Client connects a program to a ledger: it enqueues on DB, runs handlers with [Client.Worker] and waits for
// tasks with [Client.Wait]. It connects to NATS when it first works or waits. It is safe for concurrent use.
type Client struct {
	// DB has [ProducerConns] connections. Workers use their own pools, so handlers and the rest of the program do
	// not wait for each other.
	DB *pgxpool.Pool

	options Options

	mu         sync.Mutex // guards the fields below
	isClosed   bool
	workerDBs  []*pgxpool.Pool
	workerNATS *nats.Conn  // as the user worker; nil before the first worker
	waiter     *waiterOnce // nil before the first wait
}

// waiterOnce is a waiter that is opened once. Its fields are constant after opened is closed.
type waiterOnce struct {
	opened chan struct{}
	waiter *outbox.Waiter
	nc     *nats.Conn // its own connection; nil: it shares a worker's
	err    error
}

var _ ledger.Waiter = (*Client)(nil)

var errClosed = errors.New("taskledger: the client is closed")

// Open connects a program to a ledger. PostgreSQL must answer; NATS may be unavailable. Lost connections are
// restored after an outage. pool_max_conns in the address replaces the size of each connection pool.
//
// Errors: [ledger.ErrUnavailable] if PostgreSQL does not answer, [*ledger.InvalidError] if an option or an address is
// invalid.
func Open(ctx context.Context, o Options) (*Client, error) {
	o = o.withDefaults()
	if err := o.validatePrefix(); err != nil {
		return nil, err
	}
	db, err := openPool(ctx, o)
	if err != nil {
		return nil, err
	}
	if o.Metrics != nil {
		o.Metrics.AddDatabase(db)
	}
	return &Client{DB: db, options: o}, nil
}

// Worker returns a worker for these kinds; run it with [workers.Pool.Run]. It has [WorkerConns] connections to
// the database, and one more per slot of an ExactlyOnce kind. Configure it with [Options].Worker.
//
// It returns an error if a kind or the configuration is invalid, naming every fault, or if NATS refuses the
// address.
func (c *Client) Worker(kinds ...workers.Registration) (*workers.Pool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return nil, errClosed
	}
	config := c.options.workerConfig()
	hasOwnDB := config.DB == nil
	if hasOwnDB {
		db, err := c.newWorkerDB(config, kinds)
		if err != nil {
			return nil, err
		}
		config.DB = db
	}
	pool, err := c.newWorker(config, kinds)
	if err != nil && hasOwnDB {
		config.DB.Close()
	}
	if err != nil {
		return nil, err
	}
	if hasOwnDB {
		c.workerDBs = append(c.workerDBs, config.DB)
		if c.options.Metrics != nil {
			c.options.Metrics.AddDatabase(config.DB)
		}
	}
	if c.options.Metrics != nil {
		c.options.Metrics.AddWorkers(pool)
	}
	return pool, nil
}

// newWorkerDB returns connections for a worker with these kinds.
func (c *Client) newWorkerDB(w workers.Config, kinds []workers.Registration) (*pgxpool.Pool, error) {
	slots := 0
	for _, k := range kinds {
		slots += max(0, k.Connections())
	}
	if w.Slots > 0 {
		slots = min(slots, w.Slots)
	}
	config := c.DB.Config()
	pgpool.Limit(config, c.options.DatabaseURL, slots+WorkerConns)
	return pgxpool.NewWithConfig(context.Background(), config)
}

// newWorker returns a worker, and connects to NATS if config names no connection. The caller holds mu.
func (c *Client) newWorker(config workers.Config, kinds []workers.Registration) (*workers.Pool, error) {
	if config.NATS == nil {
		nc, err := c.openNATS()
		if err != nil {
			return nil, err
		}
		config.NATS = nc
	}
	pool, err := workers.New(config)
	if err != nil {
		return nil, err
	}
	return pool, pool.Register(kinds...)
}

// NATS returns the connection of the client's workers, for probes and for other uses that NATS permits the user
// worker. It connects if no worker has done so. [Client.Close] closes the connection.
func (c *Client) NATS() (*nats.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return nil, errClosed
	}
	return c.openNATS()
}

// openNATS returns the workers' connection, and opens it first if it is not open. The caller holds mu.
func (c *Client) openNATS() (_ *nats.Conn, err error) {
	if c.workerNATS == nil {
		c.workerNATS, err = c.connect(natsconfig.Worker)
	}
	return c.workerNATS, err
}

// connect connects to NATS as a user of package natsconfig, or with the credentials in the options' address.
func (c *Client) connect(user string) (*nats.Conn, error) {
	reason := func(err error) string { return connectReason(err, user) }
	options := append([]nats.Option{nats.Name(c.options.Name), nats.RetryOnFailedConnect(true)},
		natsclient.Logging(c.options.Logger.With("service", "nats"), reason)...)
	options = append(options, c.options.NATSOptions...)
	var nc *nats.Conn
	var err error
	if c.options.NATSURL == "" {
		nc, err = natsclient.Connect(c.DB, user, options...)
	} else {
		nc, err = stream.Connect(c.options.NATSURL, append(options, outbox.NATSPrefix(c.options.NATSPrefix))...)
	}
	if err == nil && c.options.Metrics != nil {
		c.options.Metrics.AddNATS(nc)
	}
	return nc, err
}

// Wake wakes the services of the ledger if they sleep, see SleepAfter of package services. Call it after a transaction
// that has enqueued tasks was committed: until it is called, the tasks wait for the services to wake by themselves.
//
// With the NATS server that taskledger serve runs, the login needs the role producer or worker.
func (c *Client) Wake(ctx context.Context) error {
	if c.options.NATSURL == "" {
		_, err := natsclient.Wake(ctx, c.DB)
		return err
	}
	nc, err := c.NATS()
	if err != nil {
		return err
	}
	return natsclient.Publish(ctx, nc, stream.PrefixOf(nc).Wake(), nil)
}

// Wait returns a task once it has finished, in this process or another; [ledger.Wait] lists the errors. A client
// is also the waiter of [ledger.WaitMany] and of a kind's method Wait.
//
// The login needs the role subscriber, or another role that may read events. A wait takes up to
// 5 s longer if NATS is unavailable, or if the login has neither the role producer nor
// worker.
func (c *Client) Wait(ctx context.Context, k ledger.Key) (ledger.Task, error) {
	return ledger.Wait(ctx, c, k)
}

// WaitFor implements [ledger.Waiter].
func (c *Client) WaitFor(ctx context.Context, keys []ledger.Key, until ledger.Until) ([]ledger.Task, error) {
	c.mu.Lock()
	if c.isClosed {
		c.mu.Unlock()
		return nil, outbox.ErrWaiterClosed
	}
	if c.waiter == nil {
		c.waiter = &waiterOnce{opened: make(chan struct{})}
		go c.openWaiter(c.waiter, c.workerNATS)
	}
	w := c.waiter
	c.mu.Unlock()
	select {
	case <-w.opened:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if w.err != nil {
		return nil, w.err
	}
	return w.waiter.WaitFor(ctx, keys, until)
}

// openWaiter opens a waiter. nc is the connection of a worker, or nil.
func (c *Client) openWaiter(w *waiterOnce, nc *nats.Conn) {
	defer close(w.opened)
	if nc == nil {
		if w.nc, w.err = c.connect(natsconfig.Waiter); w.err != nil {
			return
		}
		nc = w.nc
	}
	w.waiter, w.err = outbox.NewWaiter(outbox.WaiterConfig{DB: c.DB, NATS: nc, Logger: c.options.Logger})
}

// CloseTimeout is how long [Client.Close] waits.
const CloseTimeout = 5 * time.Second

// Close ends all waits and closes the connections. Call it after [workers.Pool.Run] has returned. It waits until
// the connections to PostgreSQL are released, at most [CloseTimeout]: a handler that outlives Run may still use a
// connection that it has acquired itself.
func (c *Client) Close() {
	c.mu.Lock()
	c.isClosed = true
	dbs, nc, waiter := append(c.workerDBs, c.DB), c.workerNATS, c.waiter
	c.workerDBs, c.workerNATS, c.waiter = nil, nil, nil
	c.mu.Unlock()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if waiter != nil {
			waiter.close()
		}
		if nc != nil {
			nc.Close()
		}
		var closing sync.WaitGroup
		for _, db := range dbs {
			closing.Go(db.Close)
		}
		closing.Wait()
	}()
	select {
	case <-closed:
	case <-time.After(CloseTimeout):
	}
}

func (w *waiterOnce) close() {
	<-w.opened
	if w.waiter != nil {
		w.waiter.Close()
	}
	if w.nc != nil {
		w.nc.Close()
	}
}

// connectReason returns the text of an error of connecting to NATS, with its cure.
func connectReason(err error, user string) string {
	if missing, ok := errors.AsType[*natsclient.NotFoundError](err); ok {
		return missing.Reason + ": " + missing.Cure
	}
	if unreachable, ok := errors.AsType[*natsclient.UnreachableError](err); ok {
		return unreachable.Error() + ": " + unreachable.Cure()
	}
	if noUser, ok := errors.AsType[*natsclient.NoUserError](err); ok {
		return fmt.Sprintf("%s: grant it the role %s of this database, or set NATS_URL", err,
			natsclient.RoleOf(noUser.User))
	}
	return err.Error()
}

func openPool(ctx context.Context, o Options) (*pgxpool.Pool, error) {
	if o.DatabaseURL == "" {
		return nil, &ledger.InvalidError{Field: "DatabaseURL",
			Rule: "is required: set it, or the environment variable DATABASE_URL"}
	}
	config, err := pgpool.Parse(o.DatabaseURL)
	if err != nil { // its text may quote parts of a password
		return nil, &ledger.InvalidError{Field: "DatabaseURL", Rule: "must be an address of PostgreSQL: " +
			"postgres://user:password@host:port/database, with special characters percent-encoded"}
	}
	pgpool.Configure(config, o.Name)
	pgpool.Limit(config, o.DatabaseURL, ProducerConns)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, errors.Join(ledger.ErrUnavailable, err)
	}
	return pool, nil
}
