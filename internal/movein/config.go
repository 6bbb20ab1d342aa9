package movein

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/envelope"
	"github.com/taskledger/taskledger/ledger"
)

// DefaultBatch is the default of [Config].Batch.
const DefaultBatch = 500

const maxBatch = 10_000

// Config names the outbox that [Run] drains.
type Config struct {
	// DB is the ledger's database; the outbox's tables are in it too. Required.
	DB *pgxpool.Pool
	// Topic of watermill-sql. Its messages are in watermill_<topic> and its consumer groups in
	// watermill_offsets_<topic>, as in DefaultPostgreSQLSchema. Required.
	Topic string
	// Schema of those tables. Default: the search_path decides.
	Schema string
	// Group is the consumer group that the import reads as: it begins at the group's place and moves it
	// on. Default: "", which is also the default of watermill-sql.
	Group string
	// Kind of the tasks that the messages become. Default: the topic.
	Kind ledger.Kind
	// Batch is how many messages one transaction imports, at most 10,000. Default: 500.
	Batch int
	// Actor is the author of the events. Default: the database's session_user.
	Actor string
	// Follow waits for more messages when the outbox is drained, until the context is done.
	Follow bool
	// Progress is called after each transaction with the totals so far. Default: disabled.
	Progress func(Result)
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("DB is required"))
	}
	if c.Topic == "" {
		faults = append(faults, errors.New("Topic is required"))
	} else if strings.Contains(c.Topic, "\x00") {
		faults = append(faults, fmt.Errorf("Topic must not hold NUL, got %q", c.Topic))
	} else if _, err := envelope.Kind(string(c.kind())); err != nil {
		faults = append(faults, fmt.Errorf("%w: name the kind of its tasks", err))
	}
	if c.Batch < 0 || c.Batch > maxBatch {
		faults = append(faults, fmt.Errorf("Batch must be between 1 and %d, got %d", maxBatch, c.Batch))
	}
	if len(faults) > 0 {
		return fmt.Errorf("import: invalid configuration: %w", errors.Join(faults...))
	}
	return nil
}

func (c Config) kind() ledger.Kind {
	if c.Kind == "" {
		return ledger.Kind(c.Topic)
	}
	return c.Kind
}

// table returns the quoted name of a table of the outbox.
func (c Config) table(name string) string {
	if c.Schema == "" {
		return pgx.Identifier{name}.Sanitize()
	}
	return pgx.Identifier{c.Schema, name}.Sanitize()
}
