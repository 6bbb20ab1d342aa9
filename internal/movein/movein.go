// Package movein drains an outbox of watermill-sql into the ledger, for users that migrate from it.
package movein

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

// pollInterval is the time between two reads of an outbox without messages.
const pollInterval = 100 * time.Millisecond

// Result counts the messages of an import.
type Result struct {
	Messages int `json:"messages"` // read from the outbox
	Existing int `json:"existing"` // of them, messages whose task existed: published both ways, or twice
}

// MessageError is the error of a message that cannot become a task. The messages before it are
// imported, and none is lost: mend or remove the row, and import again.
type MessageError struct {
	Table  string
	Offset int64
	UUID   string
	Err    error // an [*ledger.InvalidError] or a [*ledger.OtherArgsError]
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("message %q at offset %d of %s: %v", e.UUID, e.Offset, e.Table, e.Err)
}

// Unwrap returns Err.
func (e *MessageError) Unwrap() error { return e.Err }

// Run drains an outbox of watermill-sql into the ledger: each message becomes the task that the
// publisher of package watermill makes of it. Run reads as a consumer group of the outbox, by the rules
// and under the lock of watermill-sql's subscribers. It moves the group on in the transaction that
// enqueues. So no message is lost or imported twice, however often it is killed, and old producers,
// other groups and other imports may run at the same time.
//
// Run returns when the outbox is drained. It waits for messages that an older transaction holds back. It
// cannot see a message that is not committed, so stop the old producers before the last import.
// With Follow, Run continues until ctx is done and then returns nil.
//
// The result counts the imported messages, even if Run returns an error. Errors: invalid fields of [Config], a
// [*MessageError], and database errors.
func Run(ctx context.Context, c Config) (Result, error) {
	if err := c.Validate(); err != nil {
		return Result{}, err
	}
	if c.Batch == 0 {
		c.Batch = DefaultBatch
	}
	i := importer{
		config:   c,
		messages: c.table("watermill_" + c.Topic),
		offsets:  c.table("watermill_offsets_" + c.Topic),
	}
	for {
		state, err := i.importPage(ctx)
		switch {
		case ctx.Err() != nil && c.Follow:
			return i.total, nil
		case err != nil && c.Follow && ledger.Retryable(err): // a deadlock, or the database is unavailable
			_ = loop.Sleep(ctx, pollInterval)
			continue
		case err != nil:
			return i.total, i.explain(err)
		}
		if state == hasMore {
			continue
		}
		if state == drained && !c.Follow {
			return i.total, nil
		}
		if err := loop.Sleep(ctx, pollInterval); err != nil && !c.Follow {
			return i.total, err
		}
	}
}

// explain adds the cure to an error that the user can mend.
func (i *importer) explain(err error) error {
	if pgerr.Is(err, pgerr.UndefinedTable) && !errors.Is(err, ledger.ErrNotMigrated) {
		return fmt.Errorf("import: no outbox of watermill-sql for topic %q (tables %s and %s): %w",
			i.config.Topic, i.messages, i.offsets, err)
	}
	return fmt.Errorf("import: %w", err)
}
