package workers

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"
)

//go:embed sql/heads.sql
var headsSQL string

// heads asks the primary for the heads of tasks in one round trip. Answers are in their order.
func (k *kind) heads(ctx context.Context, tasks []*held) ([]head, error) {
	ids := make([]byte, 0, 40*len(tasks))
	versions := make([]byte, 0, 4*len(tasks))
	for i, h := range tasks {
		separator := byte(',')
		if i == 0 {
			separator = '{'
		}
		ids = appendQuoted(append(ids, separator), string(h.msg.BizID))
		versions = strconv.AppendInt(append(versions, separator), int64(h.msg.Version), 10)
	}
	rows, err := k.pool.config.DB.Query(ctx, headsSQL, string(k.name), string(append(ids, '}')), string(append(versions, '}')))
	if err != nil {
		return nil, fmt.Errorf("read heads: %w", err)
	}
	defer rows.Close()
	heads := make([]head, len(tasks))
	var i int32
	var h head
	var recordedAt *time.Time
	var alive int64
	columns := []any{&i, (*int32)(&h.version), (*string)(&h.eventType), (*int32)(&h.attempt), &h.actor, &recordedAt, &alive, &h.clock}
	for rows.Next() {
		h = head{found: true}
		if err := rows.Scan(columns...); err != nil {
			return nil, fmt.Errorf("read heads: %w", err)
		}
		if recordedAt != nil {
			h.recordedAt = *recordedAt
		}
		h.alive = time.Duration(alive) * time.Millisecond
		heads[i-1] = h
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read heads: %w", err)
	}
	return heads, nil
}

// appendQuoted appends s as an element of an array literal.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}
