package outbox

import (
	"context"
	_ "embed"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/discarded.sql
	discardedSQL string
	//go:embed sql/last_discarded.sql
	lastDiscardedSQL string
)

// readDiscarded reads up to which position events are discarded. An event is discarded after its page, so a page that a
// session publishes for the first time has none.
func (s *session) readDiscarded(ctx context.Context) error {
	err := s.relay.config.DB.QueryRow(ctx, lastDiscardedSQL).Scan((*int64)(&s.discarded))
	return pgerr.Explain("find discarded events", err)
}

// withoutDiscarded returns the messages of events that no operator has discarded. Others are published when the stream
// has lost messages.
func (s *session) withoutDiscarded(ctx context.Context, messages []message) ([]message, error) {
	var positions pgarray.Builder
	for _, m := range messages {
		if m.event.Position <= s.discarded {
			positions.AddInt(int64(m.event.Position))
		}
	}
	if positions.IsEmpty() {
		return messages, nil
	}
	rows, err := s.relay.config.DB.Query(ctx, discardedSQL, positions.String())
	if err != nil {
		return nil, pgerr.Explain("find discarded events", err)
	}
	discarded, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, pgerr.Explain("find discarded events", err)
	}
	isDiscarded := make(map[ledger.Position]bool, len(discarded))
	for _, p := range discarded {
		isDiscarded[ledger.Position(p)] = true
	}
	return slices.DeleteFunc(messages, func(m message) bool { return isDiscarded[m.event.Position] }), nil
}
