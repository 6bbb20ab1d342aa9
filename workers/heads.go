package workers

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/pgarray"
)

//go:embed sql/heads.sql
var headsSQL string

// heads asks the primary for the heads of tasks in one round trip. Answers are in their order.
func (k *kind) heads(ctx context.Context, tasks []*held) ([]head, error) {
	var ids, versions pgarray.Builder
	ids.Grow(len(tasks), 36*len(tasks))
	versions.Grow(len(tasks), 0)
	for _, h := range tasks {
		ids.Add(string(h.msg.BizID))
		versions.AddInt(int64(h.msg.Version))
	}
	rows, err := k.pool.config.DB.Query(ctx, headsSQL, string(k.name), ids.String(), versions.String())
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
