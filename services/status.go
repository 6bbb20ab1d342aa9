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
	c := health.Config{DB: db, Alarms: alarm.ReadUndelivered, Thresholds: make(map[health.Name]time.Duration)}
	for name, d := range thresholds {
		c.Thresholds[health.Name(name)] = d
	}
	if nc != nil {
		if c.JetStream, c.NATSError = jetstream.New(nc); c.NATSError != nil {
			c.JetStream = nil
		}
	}
	r, err := health.Read(ctx, c)
	if err != nil {
		return nil, err
	}
	return json.Marshal(r)
}
