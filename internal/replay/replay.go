// Package replay publishes events of the past on a subject of their own, for the command taskledger replay. Package
// outbox, which encodes messages, stores the function here when the program starts.
package replay

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
)

// Headers of the messages of a [Run], in addition to the events' headers.
const (
	// Header marks a message as replayed. Its value is the same in all messages of one replay.
	Header = "Taskledger-Replay"
	// HeaderEnd marks the message after the last event, with an empty body. Its value is the number of
	// events.
	HeaderEnd = "Taskledger-Replay-End"
)

// Config configures a [Run].
type Config struct {
	DB        *pgxpool.Pool       // the ledger's database, as the role operator. Required.
	JetStream jetstream.JetStream // Required.
	Range     ledger.Range        // the events. To is required, so that the replay can be continued.
	// Subject is the subject to publish on. Required. It must belong to a stream other than LEDGER, and no other
	// program may publish on it.
	Subject string
	// Rate is the maximum number of events per second. Default: 1000. Each event is acknowledged before the next one
	// is sent, so the distance to the server limits the rate too.
	Rate int
	// Archive contains the args that a message repeats, if Range contains archived events. Default: none.
	Archive feed.Archive
	// Progress is called after each event. Default: disabled.
	Progress func(Result)

	Actor  string // Default: the database's session_user.
	Reason string // for the record. Default: no reason.
}

// Result is the result of a [Run].
type Result struct {
	ID       string            `json:"id"`                // the value of [Header]
	Position ledger.Position   `json:"position"`          // of the last event, 0: none
	Events   int64             `json:"events"`            // all that were published, by earlier calls too
	Earlier  int64             `json:"earlier"`           // of these, by earlier calls
	Invalid  []ledger.Position `json:"invalid,omitempty"` // events that no message can carry: they are left out
}

// Run publishes the events of a range again, in the order of [ledger.Events], as the messages of docs/events.md with
// [Header]. A message with [HeaderEnd] follows them. No worker receives them, because they are on a
// separate subject and stream.
//
// The same call continues a replay that was interrupted, even by SIGKILL: the last message on the subject shows how far
// it came, and the stream refuses messages of a second process. A replay that has ended publishes nothing more, unless
// the stream was purged: then it begins again. The act is recorded with its actor and reason.
//
// It returns an [*ledger.InvalidError] for the subject or the range, and a [*SubjectError] if other messages are
// on the subject. It returns [nats.ErrPermissionViolation] if the NATS user may not publish there: the user operator
// may publish on replay.>. It also returns errors of the database and of JetStream.
var Run func(ctx context.Context, c Config) (Result, error)

// SubjectError reports that the newest message on the subject of a replay is not of this replay.
type SubjectError struct {
	Subject string
	Replay  string // the other replay, which has not ended; "": a message of another program
}

func (e *SubjectError) Error() string {
	if e.Replay == "" {
		return fmt.Sprintf("messages of another program are on the subject %q: choose another subject", e.Subject)
	}
	return fmt.Sprintf("replay %s has not ended on the subject %q: run it again to its end, or choose another subject",
		e.Replay, e.Subject)
}
