package ledgertest

import (
	"context"
	_ "embed"
	"fmt"
	"testing"

	"github.com/taskledger/taskledger/ledger"
)

//go:embed check.sql
var checkSQL string

// maxFaults is how many faults are described before they are only counted.
const maxFaults = 20

// Check fails the test if the ledger in db breaks one of its invariants. For every task:
//
//   - versions are 1, 2, 3… without gaps, and the first event is enqueued or scheduled;
//   - every transition is one of [ledger.Transitions], and the attempts are in step with them;
//   - positions increase with the versions;
//   - the shard is that of the first event;
//   - data decodes as its meta says.
//
// It reads every event, as they are in db's snapshot, and writes nothing.
func Check(t testing.TB, db ledger.DB) {
	t.Helper()
	faults, err := faults(t.Context(), db)
	if err != nil {
		t.Fatalf("ledgertest: check: %v", err)
	}
	for i, fault := range faults {
		if i == maxFaults {
			t.Errorf("ledgertest: and %d more", len(faults)-maxFaults)
			return
		}
		t.Errorf("ledgertest: %s", fault)
	}
}

// faults returns what is wrong, at most one fault a task.
func faults(ctx context.Context, db ledger.DB) ([]string, error) {
	rows, err := db.Query(ctx, checkSQL)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []string
	var task checked
	for rows.Next() {
		var e ledger.Event
		var data, meta *string
		err := rows.Scan((*int64)(&e.Position), (*int32)(&e.Version), (*int32)(&e.Attempt), (*int)(&e.Shard), (*string)(&e.Type),
			&e.RecordedAt, (*string)(&e.Kind), (*string)(&e.BizID), &data, &meta)
		if err != nil {
			return nil, err
		}
		e.Data, e.Meta = bytesOf(data), bytesOf(meta)
		if e.Key != task.key {
			task = checked{key: e.Key}
		}
		if fault := task.fault(e); fault != "" {
			all = append(all, fault)
		}
	}
	return all, rows.Err()
}

func bytesOf(text *string) []byte {
	if text == nil {
		return nil
	}
	return []byte(*text)
}

// checked is a task up to the event that was looked at last.
type checked struct {
	key      ledger.Key
	task     ledger.Task
	position ledger.Position
	broken   bool
}

// fault returns what is wrong with the next event, "" if nothing is or if the task was found
// broken before.
func (c *checked) fault(e ledger.Event) string {
	if c.broken {
		return ""
	}
	next, err := c.task.Apply(e)
	if err == nil {
		_, err = e.Payload()
	}
	var fault string
	switch {
	case err != nil:
		fault = err.Error()
	case e.Key.Validate() != nil:
		fault = e.Key.Validate().Error()
	case e.Shard.Validate() != nil:
		fault = e.Shard.Validate().Error()
	case e.Position <= c.position:
		fault = fmt.Sprintf("position %d after %d", e.Position, c.position)
	case e.Shard != next.Shard:
		fault = fmt.Sprintf("shard %d of a task in shard %d", e.Shard, next.Shard)
	}
	c.task, c.position, c.broken = next, e.Position, fault != ""
	if c.broken {
		return fmt.Sprintf("%s version %d (%s, position %d): %s", e.Key, e.Version, e.Type, e.Position, fault)
	}
	return ""
}
