package watermill

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/ledger"
)

// Defaults and bounds of [EventSubscriberConfig].
const (
	defaultAckWait   = 30 * time.Second
	defaultNackDelay = time.Second
	maxLanes         = ledger.Shards
	maxGroup         = 64
)

// EventSubscriberConfig configures an [EventSubscriber].
type EventSubscriberConfig struct {
	// NATS is the connection to the server of the stream. Required. It should reconnect forever, as connections of
	// outbox.Connect do.
	NATS *nats.Conn
	// Group is the name of subscribers that share the work: each message goes to one of them. The NATS
	// server stores the group's place in the stream under this name. Required: 1 to 64 letters, digits,
	// '_' and '-'.
	Group string
	// Types are the types of the events to deliver. Default: all.
	Types []ledger.EventType
	// FromNow makes a group that is new to a topic begin at the present. Default: at the oldest message of the stream.
	FromNow bool
	// Lanes is how many messages of the group may be in flight at a time, at most 64. Messages of one
	// task are in one lane, one after the other. Default: 1, which keeps the order of the whole topic.
	Lanes int
	// AckWait is how long after a member is lost its messages are delivered to another member. A live member may take
	// any time. Default: 30 s; at least 1 s.
	AckWait time.Duration
	// NackDelay is how long after a nack the message is delivered again. The message blocks its lane
	// until it is acked. Default: 1 s.
	NackDelay time.Duration
	// Logger logs warnings and errors for the operator. Default: [slog.Default].
	Logger *slog.Logger
}

// Validate reports every fault at once.
func (c EventSubscriberConfig) Validate() error {
	var faults []error
	fault := func(format string, a ...any) { faults = append(faults, fmt.Errorf(format, a...)) }
	if c.NATS == nil {
		fault("NATS is required")
	}
	if c.Group == "" {
		fault("Group is required")
	} else if len(c.Group) > maxGroup || strings.Contains(c.Group, ".") || ledger.Kind(c.Group).Validate() != nil {
		fault("Group must be 1 to %d of A-Z a-z 0-9 _ -, got %q", maxGroup, c.Group)
	}
	for _, t := range c.Types {
		if t.State() == ledger.StateNone {
			fault("Types must be types of events, got %q", t)
		}
	}
	if c.Lanes < 0 || c.Lanes > maxLanes {
		fault("Lanes must be between 1 and %d, got %d", maxLanes, c.Lanes)
	}
	if c.AckWait != 0 && c.AckWait < time.Second {
		fault("AckWait must be at least 1s, got %s", c.AckWait)
	}
	if c.NackDelay < 0 {
		fault("NackDelay must not be negative, got %s", c.NackDelay)
	}
	if len(faults) > 0 {
		return fmt.Errorf("watermill: invalid EventSubscriberConfig: %w", errors.Join(faults...))
	}
	return nil
}

func (c EventSubscriberConfig) withDefaults() EventSubscriberConfig {
	if c.Lanes == 0 {
		c.Lanes = 1
	}
	if c.AckWait == 0 {
		c.AckWait = defaultAckWait
	}
	if c.NackDelay == 0 {
		c.NackDelay = defaultNackDelay
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Types = slices.Compact(slices.Sorted(slices.Values(c.Types)))
	return c
}
