package health

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// Config configures [Read].
type Config struct {
	// DB is the database of the ledger. Required.
	DB ledger.DB
	// JetStream reads the stream. Default: the stream is not read.
	JetStream jetstream.JetStream
	// NATSError is why JetStream is nil: the reason of [StreamUnavailable]. Default: none, it is not a condition.
	NATSError error
	// Stream is the wanted configuration of the stream. Limits of 0 are not compared. Default: the relay's defaults.
	Stream outbox.StreamConfig
	// Thresholds are the durations after which a delay is a condition. Negative: never. Default: the thresholds in
	// [Definitions].
	Thresholds map[Name]time.Duration
	// Alarms returns the alarms that are not delivered: ReadUndelivered of package alarm. Default: none are read.
	Alarms func(context.Context, ledger.DB) ([]UndeliveredAlarm, error)
	// Numbers keeps the numbers by kind between reports. Default: each report reads them.
	Numbers *Numbers
	// Only restricts the report to some conditions and the numbers that they need. Default: everything.
	Only []Name
}

// UndeliveredAlarm is an alarm whose delivery has failed.
type UndeliveredAlarm struct {
	Alarm  ledger.BizID `json:"alarm"` // of its task, "<receiver>/<number>"
	MadeAt time.Time    `json:"made_at"`
	Error  string       `json:"error"` // of the last attempt
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("health: DB is required"))
	}
	faults = append(faults, c.thresholdFaults()...)
	for _, name := range c.Only {
		if _, found := Define(name); !found {
			faults = append(faults, fmt.Errorf("health: Only must have names of conditions, got %q", name))
		}
	}
	return errors.Join(faults...)
}
