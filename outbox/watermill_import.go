package outbox

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	wm "github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/envelope"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/import_begin.sql
	importBeginSQL string
	//go:embed sql/import_lock.sql
	importLockSQL string
	//go:embed sql/import_page.sql
	importPageSQL string
	//go:embed sql/import_left.sql
	importLeftSQL string
	//go:embed sql/import_advance.sql
	importAdvanceSQL string
)

// importPause is how often an outbox without messages is looked at.
const importPause = 100 * time.Millisecond

// DefaultImportBatch is how many messages are imported in one transaction.
const DefaultImportBatch = 500

// ImportConfig says which watermill-sql outbox [Import] drains.
type ImportConfig struct {
	// DB is the ledger's database; the outbox's tables are in it too. Required.
	DB *pgxpool.Pool
	// Topic of watermill-sql, whose messages are in watermill_<topic> and whose consumer groups
	// in watermill_offsets_<topic>, as its DefaultPostgreSQLSchema has them. Required.
	Topic string
	// Schema of those tables. Default: as the search_path has it.
	Schema string
	// Group is the consumer group whose place is taken: the import begins where it stands, and
	// moves it on. Default: "", which is watermill-sql's own default.
	Group string
	// Kind of the tasks that the messages become. Default: the topic.
	Kind ledger.Kind
	// Batch is how many messages are imported in one transaction, default 500.
	Batch int
	// Actor who enqueues. Empty: the database's session_user.
	Actor string
	// Follow goes on when the outbox is drained, until the context is done.
	Follow bool
	// Progress is told what was imported so far, after each transaction. Nil: nobody.
	Progress func(Imported)
}

// Validate reports every fault at once.
func (c ImportConfig) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("DB is missing"))
	}
	if c.Topic == "" || strings.Contains(c.Topic, "\x00") {
		faults = append(faults, errors.New("the topic must not be empty"))
	} else if _, err := envelope.Kind(string(c.kind())); err != nil {
		faults = append(faults, fmt.Errorf("%w; name the kind that its messages shall have", err))
	}
	if c.Batch < 0 || c.Batch > 10_000 {
		faults = append(faults, fmt.Errorf("the batch must be 1 to 10000, is %d", c.Batch))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("import configuration: %w", err)
	}
	return nil
}

func (c ImportConfig) kind() ledger.Kind {
	if c.Kind == "" {
		return ledger.Kind(c.Topic)
	}
	return c.Kind
}

// Imported counts what an import did.
type Imported struct {
	Messages int `json:"messages"` // read from the outbox
	Existing int `json:"existing"` // of them those whose task existed: published both ways, or twice
}

// ImportError says which message of an outbox could not be imported. Those before it are, and
// nothing is lost: mend it or remove it, and import again.
type ImportError struct {
	Table  string
	Offset int64
	UUID   string
	Err    error // an [*ledger.InvalidError] or a [*ledger.ConflictError]
}

func (e *ImportError) Error() string {
	return fmt.Sprintf("message %q at offset %d of %s: %v", e.UUID, e.Offset, e.Table, e.Err)
}

// Unwrap returns why.
func (e *ImportError) Unwrap() error { return e.Err }

// Import drains an outbox of watermill-sql into the ledger: each message becomes the task that a
// [Publisher] would have made of it. It reads as one of the outbox's consumer groups, by the same
// rules and under the same lock as watermill-sql's subscribers, and moves the group on in the
// transaction that enqueues. So nothing is lost and nothing comes twice, whatever is killed, and
// old producers, other groups and further imports may go on beside it.
//
// It returns when the outbox has no more messages, those included that wait for an older
// transaction to end; a message that is not committed yet cannot be seen, so stop the old
// producers before the last import. With Follow it goes on until ctx is done, and returns nil
// then. What it returns beside an error has been imported. An [*ImportError] names a message that
// cannot become a task.
func Import(ctx context.Context, c ImportConfig) (Imported, error) {
	if err := c.Validate(); err != nil {
		return Imported{}, err
	}
	if c.Batch == 0 {
		c.Batch = DefaultImportBatch
	}
	i := importer{config: c, messages: c.table("watermill_" + c.Topic), offsets: c.table("watermill_offsets_" + c.Topic)}
	for {
		state, err := i.page(ctx)
		switch {
		case ctx.Err() != nil && c.Follow:
			return i.done, nil
		case err != nil && c.Follow && ledger.Retryable(err): // a deadlock, or the database is away
			_ = loop.Sleep(ctx, importPause)
			continue
		case err != nil:
			return i.done, i.explain(err)
		}
		if state == outboxHasMore {
			continue
		}
		if state == outboxDrained && !c.Follow {
			return i.done, nil
		}
		if err := loop.Sleep(ctx, importPause); err != nil && !c.Follow {
			return i.done, err
		}
	}
}

func (c ImportConfig) table(name string) string {
	if c.Schema == "" {
		return pgx.Identifier{name}.Sanitize()
	}
	return pgx.Identifier{c.Schema, name}.Sanitize()
}

// outboxState is what a page found.
type outboxState int

const (
	outboxHasMore outboxState = iota // there was a page
	outboxWaits                      // nothing can be read yet
	outboxDrained
)

// importer is one import.
type importer struct {
	config            ImportConfig
	messages, offsets string // tables, quoted
	done              Imported
}

func (i *importer) sql(statement string) string {
	return strings.NewReplacer("{messages}", i.messages, "{offsets}", i.offsets).Replace(statement)
}

// outboxMessage is a row of the outbox.
type outboxMessage struct {
	offset      int64
	transaction string
	message     *wm.Message
}

// page imports the next messages in one transaction.
func (i *importer) page(ctx context.Context) (state outboxState, err error) {
	var found []outboxMessage
	existing := 0
	err = pgx.BeginTxFunc(ctx, i.config.DB, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		var offset int64
		var transaction string
		if _, err := tx.Exec(ctx, i.sql(importBeginSQL), i.config.Group); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, i.sql(importLockSQL), i.config.Group).Scan(&offset, &transaction); err != nil {
			return err
		}
		if found, err = i.read(ctx, tx, transaction, offset); err != nil {
			return err
		}
		if len(found) == 0 {
			var left bool
			state = outboxDrained
			if err := tx.QueryRow(ctx, i.sql(importLeftSQL), transaction, offset).Scan(&left); err != nil {
				return err
			}
			if left {
				state = outboxWaits
			}
			return nil
		}
		if existing, err = i.enqueue(ctx, tx, found); err != nil {
			return err
		}
		last := found[len(found)-1]
		_, err := tx.Exec(ctx, i.sql(importAdvanceSQL), i.config.Group, last.offset, last.transaction)
		return err
	})
	if err != nil || len(found) == 0 {
		return state, err
	}
	i.done.Messages += len(found)
	i.done.Existing += existing
	if i.config.Progress != nil {
		i.config.Progress(i.done)
	}
	return outboxHasMore, nil
}

// read returns the messages behind a place.
func (i *importer) read(ctx context.Context, tx pgx.Tx, transaction string, offset int64) ([]outboxMessage, error) {
	rows, err := tx.Query(ctx, i.sql(importPageSQL), transaction, offset, int64(i.config.Batch))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (outboxMessage, error) {
		var m outboxMessage
		var uuid string
		var payload []byte // of a column of type JSON or BYTEA
		var metadata *string
		if err := row.Scan(&m.offset, &m.transaction, &uuid, &payload, &metadata); err != nil {
			return m, err
		}
		m.message = wm.NewMessage(uuid, payload)
		if metadata == nil {
			return m, nil
		}
		if err := json.Unmarshal([]byte(*metadata), &m.message.Metadata); err != nil {
			return m, i.failed(m, &ledger.InvalidError{Field: "metadata", Rule: "must be an object of texts: " + err.Error()})
		}
		return m, nil
	})
}

// enqueue makes tasks of messages and returns how many of them existed.
func (i *importer) enqueue(ctx context.Context, tx pgx.Tx, messages []outboxMessage) (existing int, err error) {
	entries := make([]ledger.Entry, len(messages))
	for n, m := range messages {
		if entries[n], err = envelope.Entry(string(i.config.kind()), m.message); err != nil {
			return 0, i.failed(m, err)
		}
		entries[n].Options.Actor = i.config.Actor
	}
	answers, err := ledger.EnqueueInOrder(ctx, tx, entries)
	if err != nil {
		return 0, err
	}
	for n, a := range answers {
		if err := envelope.Conflict(a); err != nil {
			return 0, i.failed(messages[n], err)
		}
		if !a.New {
			existing++
		}
	}
	return existing, nil
}

func (i *importer) failed(m outboxMessage, err error) error {
	return &ImportError{Table: i.messages, Offset: m.offset, UUID: m.message.UUID, Err: err}
}

// explain names what is missing.
func (i *importer) explain(err error) error {
	if pgerr.Is(err, pgerr.UndefinedTable) && !errors.Is(err, ledger.ErrNotMigrated) {
		return fmt.Errorf("import: there is no outbox of watermill-sql for topic %q (tables %s and %s): %w", i.config.Topic, i.messages, i.offsets, err)
	}
	return fmt.Errorf("import: %w", err)
}
