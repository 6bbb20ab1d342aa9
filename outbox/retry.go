package outbox

import (
	"context"
	_ "embed"
	"encoding/json"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/retried.sql
var retriedSQL string

// publishRetried publishes the events that an operator wants published again, according to the records in a page. The
// cursor then covers them together with the page, so a relay that is killed leaves none out.
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
		events, err := s.readRetried(ctx, positions)
		if err != nil || len(events) == 0 {
			return err
		}
		last := events[len(events)-1].Position
		for b, err := range s.encoder.batches(ctx, events) {
			if err != nil {
				return err
			}
			for _, r := range b.rejects {
				if err := s.park(ctx, r.event, r.reason); err != nil {
					return err
				}
			}
			if err := s.publish(ctx, b.messages); err != nil {
				return err
			}
		}
		positions = slices.DeleteFunc(positions, func(p ledger.Position) bool { return p <= last })
	}
	return nil
}

// readRetried reads the events at the first of some positions: as many as have about maxArgsBytes of data.
func (s *session) readRetried(ctx context.Context, positions []ledger.Position) (events []ledger.Event, err error) {
	var list pgarray.Builder
	for _, p := range positions {
		list.AddInt(int64(p))
	}
	rows, err := s.relay.config.DB.Query(ctx, retriedSQL, list.String())
	if err != nil {
		return nil, pgerr.Explain("read parked events", err)
	}
	defer rows.Close()
	for bytes := 0; bytes < maxArgsBytes && rows.Next(); {
		var e ledger.Event
		var data, meta *string
		var at time.Time
		err := rows.Scan((*int64)(&e.Position), (*int32)(&e.Version), (*int32)(&e.Attempt), (*int)(&e.Shard),
			(*string)(&e.Type), pgquery.Micros(&at), (*string)(&e.Kind), (*string)(&e.BizID), &data, &meta)
		if err != nil {
			return nil, pgerr.Explain("read parked events", err)
		}
		e.RecordedAt, e.Data, e.Meta = at, text(data), text(meta)
		bytes += len(e.Data) + len(e.Meta)
		events = append(events, e)
	}
	rows.Close()
	return events, pgerr.Explain("read parked events", rows.Err())
}
