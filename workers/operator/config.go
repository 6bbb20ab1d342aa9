package operator

import (
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
)

// Config configures an [Operator].
type Config struct {
	// DB is the primary. Required.
	DB *pgxpool.Pool
	// NATS is the connection by which workers are notified at once that a running task was taken from them.
	// Default: disabled; workers notice when they renew their leases, every third of their AckWait.
	NATS *nats.Conn
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	if c.DB == nil {
		return errors.New("operator: DB is required")
	}
	return nil
}
