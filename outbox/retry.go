package outbox

import (
	"context"
	_ "embed"
	"encoding/json"
	"slices"

	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/retried.sql
var retriedSQL string

// publishRetried publishes the events that an operator has published again, by the records of that in a page. So the
// cursor covers them as it covers the page: a relay that is killed leaves none out. They are not withheld.
func (s *session) publishRetried(ctx context.Context, page []ledger.Event) error {
	var positions []ledger.Position
	for _, e := range page {
		if e.Kind != operation.Kind || e.Version != 1 {
			continue
		}
		var o operation.Operation
		if err := json.Unmarshal(e.Data, &o); err != nil || o.Action != operation.RetryParked {
			continue // the owner of the schema may insert other data
		}
		positions = append(positions, o.Positions...)
	}
	if len(positions) == 0 {
		return nil
	}
	if err := s.check(ctx); err != nil { // reads the limits of the stream, which the operator may have raised just now
		return err
	}
	slices.Sort(positions)
	for len(positions) > 0 {
		var list pgarray.Builder
		for _, p := range positions {
			list.AddInt(int64(p))
		}
		rows, err := s.relay.config.DB.Query(ctx, retriedSQL, list.String())
		if err != nil {
			return pgerr.Explain("read parked events", err)
		}
		w, err := s.scanWork(ctx, rows, maxArgsBytes)
		if err != nil {
			return pgerr.Explain("read parked events", err)
		}
		if err := s.publish(ctx, w.messages); err != nil {
			return err
		}
		if !w.isCut {
			return nil
		}
		positions = slices.DeleteFunc(positions, func(p ledger.Position) bool { return p <= w.last })
	}
	return nil
}
