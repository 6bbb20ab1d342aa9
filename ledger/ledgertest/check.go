package ledgertest

import (
	"context"
	_ "embed"
	"fmt"
	"testing"

	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed check.sql
var checkSQL string

// maxFaults is the number of faults that Check describes. It only counts the others.
const maxFaults = 20

// Check fails the test if the ledger in db breaks an invariant. For every task:
//
//   - versions are 1, 2, 3… without gaps, and the first event is enqueued or scheduled;
//   - every transition is one of [ledger.Transitions] or begins a run, and runs and attempts are counted correctly;
//   - positions increase with the versions;
//   - the shard of all events is the first event's;
//   - only scheduled events and events with args change the priority, and only the latter change the partition;
//   - only events with args change the order key, and a task with one lines up before it becomes available;
//   - data decodes with the encoding in meta.
//
// It reads every event in db's snapshot and writes nothing.
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

// faults returns at most one fault per task.
func faults(ctx context.Context, db ledger.DB) ([]string, error) {
	rows, err := db.Query(ctx, checkSQL)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []string
	var task taskCheck
	for rows.Next() {
		var e ledger.Event
		var data, meta *string
		err := rows.Scan(
			(*int64)(&e.Position), (*int32)(&e.Version), (*int32)(&e.Attempt), (*int)(&e.Shard), (*string)(&e.Type),
			pgquery.Micros(&e.RecordedAt), (*string)(&e.Kind), (*string)(&e.BizID), (*int)(&e.Priority),
			(*pgquery.Repeated)(&e.Partition), &e.Run, (*pgquery.Repeated)(&e.OrderKey), &data, &meta)
		if err != nil {
			return nil, err
		}
		e.Data, e.Meta = bytesOf(data), bytesOf(meta)
		if e.Key != task.key {
			task = taskCheck{key: e.Key}
		}
		if fault := task.fault(e); fault != "" {
			all = append(all, fault)
		}
	}
	return all, rows.Err()
}

// bytesOf returns the bytes of a column, nil for null.
func bytesOf(text *string) []byte {
	if text == nil {
		return nil
	}
	return []byte(*text)
}

// taskCheck is a task up to the last checked event.
type taskCheck struct {
	key      ledger.Key
	task     ledger.Task
	position ledger.Position
	isBroken bool // an event had a fault
}

// fault returns the fault of the next event, and "" if the event is valid. After the first fault it returns "".
func (c *taskCheck) fault(e ledger.Event) string {
	if c.isBroken {
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
		fault = fmt.Sprintf("position must be greater than %d, got %d", c.position, e.Position)
	case e.Shard != next.Shard:
		fault = fmt.Sprintf("shard must be %d as in the first event, got %d", next.Shard, e.Shard)
	}
	if fault == "" && !e.HasArgs() && e.Type != ledger.EventScheduled && e.Priority != c.task.Priority {
		fault = fmt.Sprintf("priority must be %d as in the event before, got %d", c.task.Priority, e.Priority)
	}
	if fault == "" && !e.HasArgs() && e.Partition != c.task.Partition {
		fault = fmt.Sprintf("partition must be %q as in the event before, got %q", c.task.Partition, e.Partition)
	}
	if fault == "" {
		fault = c.lineFault(e)
	}
	c.task, c.position, c.isBroken = next, e.Position, fault != ""
	if c.isBroken {
		return fmt.Sprintf("%s version %d (%s, position %d): %s", e.Key, e.Version, e.Type, e.Position, fault)
	}
	return ""
}

// lineFault returns why an event breaks a rule of lines, or "".
func (c *taskCheck) lineFault(e ledger.Event) string {
	switch {
	case !e.HasArgs() && e.OrderKey != c.task.OrderKey:
		return fmt.Sprintf("order key must be %q as in the event before, got %q", c.task.OrderKey, e.OrderKey)
	case e.Type == ledger.EventLinedUp && e.OrderKey == "":
		return "a task without an order key must not line up"
	case e.OrderKey == "":
		return ""
	case e.Type == ledger.EventEnqueued, e.Type == ledger.EventReleased && c.task.State.Finished():
		return "a task with an order key must line up"
	}
	return ""
}
