package services

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/internal/health"
)

// ReadStatus returns the state of a ledger's services and the conditions that hold, as JSON: the answer of GET
// /v1/status. The login of db needs the role reader or relay. nc reads the stream; nil: it is not read.
//
// A threshold is the duration after which a delay is a condition, by the condition's name; negative: never. Default:
// the thresholds in docs/operations.md.
func ReadStatus(
	ctx context.Context, db *pgxpool.Pool, nc *nats.Conn, thresholds map[string]time.Duration,
) (json.RawMessage, error) {
	c := healthConfig(db, nc, nil)
	c.Thresholds = make(map[health.Name]time.Duration)
	for name, d := range thresholds {
		c.Thresholds[health.Name(name)] = d
	}
	r, err := health.Read(ctx, c)
	if err != nil {
		return nil, err
	}
	return json.Marshal(r)
}

// healthConfig returns how the state of a ledger is read. nc reads the stream; nil: it is not read.
func healthConfig(db *pgxpool.Pool, nc *nats.Conn, numbers *health.Numbers) health.Config {
	c := health.Config{DB: db, Alarms: alarm.ReadUndelivered, Numbers: numbers}
	if nc != nil {
		if c.JetStream, c.NATSError = jetstream.New(nc); c.NATSError != nil {
			c.JetStream = nil
		}
	}
	return c
}
