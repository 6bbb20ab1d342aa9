package seal

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

// Event is an event with all columns that a leaf covers, as stored. Nil is null.
type Event struct {
	Position    ledger.Position `json:"position"`
	ledger.Key                  // kind and biz_id
	Version     ledger.Version  `json:"version"`
	Run         *int32          `json:"run"`
	Attempt     ledger.Attempt  `json:"attempt"`
	Type        string          `json:"type"`
	RecordedAt  time.Time       `json:"recorded_at"`
	LoginID     int32           `json:"login_id"`
	Shard       int16           `json:"shard"`
	DataVersion int16           `json:"data_version"`
	Priority    int16           `json:"priority"`
	OrderKey    *string         `json:"order_key"`
	Partition   *string         `json:"partition"`
	Data        *string         `json:"data"` // the text of the column
	Meta        *string         `json:"meta"`
	Actor       *string         `json:"actor"`
}

// columns returns pointers to scan the columns of events.sql into.
func (e *Event) columns() []any {
	return []any{
		(*int64)(&e.Position), (*string)(&e.Kind), (*string)(&e.BizID), (*int32)(&e.Version), &e.Run,
		(*int32)(&e.Attempt), &e.Type, pgquery.Micros(&e.RecordedAt), &e.LoginID, &e.Shard, &e.DataVersion, &e.Priority,
		&e.OrderKey, &e.Partition, &e.Data, &e.Meta, &e.Actor,
	}
}

// collectEvents returns the events of a query that selects the columns of events.sql.
func collectEvents(rows pgx.Rows) ([]Event, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) {
		return e, row.Scan(e.columns()...)
	})
}

// Lengths of a salt and of the digest that replaces it.
const (
	saltBytes   = 16
	digestBytes = sha256.Size
)

// newSalt returns a random salt.
func newSalt() []byte {
	salt := make([]byte, saltBytes)
	rand.Read(salt) // never fails
	return salt
}

// Digest returns the digest of the personal data of e with a salt, see the package comment.
func (e Event) Digest(salt []byte) [sha256.Size]byte {
	text := append([]byte("taskledger personal data v1\n"), salt...)
	text = appendText(text, "data", e.Data)
	text = appendText(text, "meta", e.Meta)
	text = appendText(text, "actor", e.Actor)
	return sha256.Sum256(text)
}

// Record returns the record of e with the digest of its personal data, see the package comment.
func (e Event) Record(digest [sha256.Size]byte) []byte {
	kind, bizID := string(e.Kind), string(e.BizID)
	text := []byte("taskledger event v1\n")
	text = appendNumber(text, "position", int64(e.Position))
	text = appendText(text, "kind", &kind)
	text = appendText(text, "biz_id", &bizID)
	text = appendNumber(text, "version", int64(e.Version))
	text = appendOptional(text, "run", e.Run)
	text = appendNumber(text, "attempt", int64(e.Attempt))
	text = fmt.Appendf(text, "type %s\n", e.Type)
	text = e.RecordedAt.UTC().AppendFormat(append(text, "recorded_at "...), "2006-01-02T15:04:05.000000Z\n")
	text = appendNumber(text, "login_id", int64(e.LoginID))
	text = appendNumber(text, "shard", int64(e.Shard))
	text = appendNumber(text, "data_version", int64(e.DataVersion))
	text = appendNumber(text, "priority", int64(e.Priority))
	text = appendText(text, "order_key", e.OrderKey)
	text = appendText(text, "partition", e.Partition)
	text = append(text, "personal "...)
	return append(hex.AppendEncode(text, digest[:]), '\n')
}

func appendNumber(to []byte, name string, n int64) []byte {
	to = append(append(to, name...), ' ')
	return append(strconv.AppendInt(to, n, 10), '\n')
}

func appendOptional(to []byte, name string, n *int32) []byte {
	if n == nil {
		return append(append(to, name...), " -\n"...)
	}
	return appendNumber(to, name, int64(*n))
}

func appendText(to []byte, name string, text *string) []byte {
	to = append(append(to, name...), ' ')
	if text == nil {
		return append(to, "-\n"...)
	}
	to = append(strconv.AppendInt(to, int64(len(*text)), 10), ' ')
	return append(append(to, *text...), '\n')
}

// sealed returns the record of e with its salt or the digest that replaced it. In the record the type does not follow
// its length: if it contained a line break, a part of another event's order_key could pass for the lines that follow.
func (e Event) sealed(salt []byte) ([]byte, error) {
	if strings.Contains(e.Type, "\n") {
		return nil, errType
	}
	switch len(salt) {
	case saltBytes:
		return e.Record(e.Digest(salt)), nil
	case digestBytes:
		if e.Data != nil || e.Meta != nil || e.Actor != nil {
			return nil, errNotErased
		}
		return e.Record([digestBytes]byte(salt)), nil
	}
	return nil, fmt.Errorf("%w: %d bytes", errSalt, len(salt))
}

// leaf returns the hash of e's leaf, with its salt or the digest that replaced it.
func (e Event) leaf(salt []byte) (tlog.Hash, error) {
	record, err := e.sealed(salt)
	return tlog.RecordHash(record), err
}
