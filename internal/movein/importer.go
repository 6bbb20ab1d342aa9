package movein

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/envelope"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/begin.sql
	beginSQL string
	//go:embed sql/lock.sql
	lockSQL string
	//go:embed sql/page.sql
	pageSQL string
	//go:embed sql/remaining.sql
	remainingSQL string
	//go:embed sql/advance.sql
	advanceSQL string
)

// importer is one import. It is for one goroutine.
type importer struct {
	config            Config
	messages, offsets string // tables, quoted
	total             Result
}

// outboxState is the state of the outbox behind a page.
type outboxState int

const (
	hasMore  outboxState = iota // the page had messages
	heldBack                    // the remaining messages wait for an older transaction
	drained
)

// row is a row of the outbox.
type row struct {
	offset      int64
	transaction string
	message     envelope.Message
}

func (i *importer) sql(statement string) string {
	return strings.NewReplacer("{messages}", i.messages, "{offsets}", i.offsets).Replace(statement)
}

// importPage imports the next messages in one transaction.
func (i *importer) importPage(ctx context.Context) (state outboxState, err error) {
	var rows []row
	existing := 0
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	err = pgx.BeginTxFunc(ctx, i.config.DB, options, func(tx pgx.Tx) error {
		var offset int64
		var transaction string
		if _, err := tx.Exec(ctx, i.sql(beginSQL), i.config.Group); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, i.sql(lockSQL), i.config.Group).Scan(&offset, &transaction); err != nil {
			return err
		}
		if rows, err = i.read(ctx, tx, transaction, offset); err != nil {
			return err
		}
		if len(rows) == 0 {
			state, err = i.stateBehind(ctx, tx, transaction, offset)
			return err
		}
		if existing, err = i.enqueue(ctx, tx, rows); err != nil {
			return err
		}
		last := rows[len(rows)-1]
		_, err := tx.Exec(ctx, i.sql(advanceSQL), i.config.Group, last.offset, last.transaction)
		return err
	})
	if err != nil || len(rows) == 0 {
		return state, err
	}
	i.total.Messages += len(rows)
	i.total.Existing += existing
	if i.config.Progress != nil {
		i.config.Progress(i.total)
	}
	return hasMore, nil
}

// stateBehind returns the state of an outbox without readable messages after a place.
func (i *importer) stateBehind(ctx context.Context, tx pgx.Tx, transaction string, offset int64) (outboxState, error) {
	var remaining bool
	if err := tx.QueryRow(ctx, i.sql(remainingSQL), transaction, offset).Scan(&remaining); err != nil {
		return 0, err
	}
	if remaining {
		return heldBack, nil
	}
	return drained, nil
}

// read returns the next rows behind a place.
func (i *importer) read(ctx context.Context, tx pgx.Tx, transaction string, offset int64) ([]row, error) {
	rows, err := tx.Query(ctx, i.sql(pageSQL), transaction, offset, int64(i.config.Batch))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(scanned pgx.CollectableRow) (row, error) {
		var r row
		var uuid string
		var payload []byte // of a column of type JSON or BYTEA
		var metadata *string
		if err := scanned.Scan(&r.offset, &r.transaction, &uuid, &payload, &metadata); err != nil {
			return r, err
		}
		r.message = envelope.Message{UUID: uuid, Payload: payload}
		if metadata == nil {
			return r, nil
		}
		if err := json.Unmarshal([]byte(*metadata), &r.message.Metadata); err != nil {
			rule := "must be a JSON object of strings: " + err.Error()
			return r, i.failure(r, &ledger.InvalidError{Field: "metadata", Rule: rule})
		}
		return r, nil
	})
}

// enqueue makes tasks of rows and returns how many of the tasks existed.
func (i *importer) enqueue(ctx context.Context, tx pgx.Tx, rows []row) (existing int, err error) {
	entries := make([]ledger.Entry, len(rows))
	for n, r := range rows {
		if entries[n], err = envelope.Entry(string(i.config.kind()), r.message); err != nil {
			return 0, i.failure(r, err)
		}
		entries[n].Options.Actor = i.config.Actor
	}
	answers, err := ledger.EnqueueInOrder(ctx, tx, entries)
	if err != nil {
		return 0, err
	}
	for n, a := range answers {
		if err := envelope.Conflict(a); err != nil {
			return 0, i.failure(rows[n], err)
		}
		if !a.New {
			existing++
		}
	}
	return existing, nil
}

func (i *importer) failure(r row, err error) error {
	return &MessageError{Table: i.messages, Offset: r.offset, UUID: r.message.UUID, Err: err}
}
