package outbox

import (
	"context"
	_ "embed"
	"encoding/json"

	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/retried.sql
var retriedSQL string

// retried returns the messages of the events that an operator has published again, by the records of that in a page.
// So the cursor covers them as it covers the page: a relay that is killed leaves none out. They are not withheld.
func (s *session) retried(ctx context.Context, page []ledger.Event) ([]message, error) {
	var positions pgarray.Builder
	for _, e := range page {
		if e.Kind != operation.Kind || e.Version != 1 {
			continue
		}
		var o operation.Operation
		if err := json.Unmarshal(e.Data, &o); err != nil || o.Action != operation.RetryParked {
			continue // the owner of the schema may insert other data
		}
		for _, p := range o.Positions {
			positions.AddInt(int64(p))
		}
	}
	if positions.IsEmpty() {
		return nil, nil
	}
	if err := s.check(ctx); err != nil { // reads the limits of the stream, which the operator may have raised just now
		return nil, err
	}
	rows, err := s.relay.config.DB.Query(ctx, retriedSQL, positions.String())
	if err != nil {
		return nil, pgerr.Explain("read parked events", err)
	}
	messages, err := s.scanWork(ctx, rows)
	return messages, pgerr.Explain("read parked events", err)
}
