// Package served publishes the events of a subscriber on a stream of its own, for the command taskledger serve
// subscriber. Package outbox stores the functions here when the program starts.
package served

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
)

// Config configures a subscriber whose events are published on a stream of its own, so that its program needs only a
// NATS client. The names of stream, subjects and consumer come from its name: SUBSCRIBER_mails,
// subscriber.mails.<shard>.<type>.<kind> and mails. docs/events.md describes the messages.
type Config struct {
	DB   *pgxpool.Pool // the primary database, with the role subscriber. Required.
	NATS *nats.Conn    // a connection of outbox.Connect, with the rights of the user NAME-server. Required.
	Name string        // as in outbox.Subscription. Required.

	From  feed.Start         // as in outbox.Subscription
	Kinds []ledger.Kind      // as in outbox.Subscription
	Types []ledger.EventType // as in outbox.Subscription

	Archive feed.Archive // as in outbox.Subscription

	// PageSize is the maximum number of events that are on the stream at a time. Default: 500.
	PageSize int
	// InFlight is the number of messages that the program may receive before it acknowledges the first, if the consumer
	// is created. With 1, no later message overtakes a redelivered one. Default: PageSize.
	InFlight int
	// Replicas of the stream, if it is made. Default: 1.
	Replicas int
	// Logger logs outages, and events that no message can carry. Default: [slog.Default].
	Logger *slog.Logger
}

// Run publishes the events from the place of the subscriber on, until ctx is done, and then returns nil. It
// makes the stream and its consumer if they are missing, before the first event.
//
// A page of events is published when all messages of the previous page are acknowledged. The subscriber passes the
// events of a page when they are acknowledged. So its lag is the program's lag, and a loss of the stream loses no
// event. A task's events arrive in order. After a crash of this process, or of NATS, the events of a page may arrive
// twice, with the same ce-id. Processes with the same name stand by for each other.
//
// It returns the errors of outbox.Subscribe.
var Run func(ctx context.Context, c Config) error

// Validate reports every fault of a configuration at once.
var Validate func(c Config) error
