package outbox

import (
	"context"
	_ "embed"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/unfinished.sql
var unfinishedSQL string

// publishOwed publishes the work messages that a repair still owes. It writes its progress into the mark, so
// that the next relay continues after a crash.
func (s *session) publishOwed(ctx context.Context) error {
	for s.mark.Owed != nil {
		messages, reached, err := s.unfinished(ctx, *s.mark.Owed)
		if err != nil {
			return err
		}
		messages = slices.DeleteFunc(messages, backlog{s}.isOfWithheldKind)
		fault.Point(FaultPage)
		if err := s.send(ctx, messages); err != nil {
			return err
		}
		fault.Point(FaultPublished)
		if reached == 0 || reached >= s.mark.Owed.To {
			s.mark.Owed = nil
		} else {
			s.mark.Owed = &owedRange{After: reached, To: s.mark.Owed.To}
		}
		if s.mark.Owed != nil && len(messages) == 0 {
			continue // reading on costs less than a cursor row
		}
		if err := s.writeMark(ctx); err != nil {
			return err
		}
	}
	return nil
}

// unfinished returns the next work messages of a range, and the position up to which they were searched, 0 at
// the end of the range.
func (s *session) unfinished(
	ctx context.Context, o owedRange,
) (messages []message, reached ledger.Position, err error) {
	rows, err := s.relay.config.DB.Query(ctx, unfinishedSQL, int64(o.After), int64(o.To))
	if err != nil {
		return nil, 0, pgerr.Explain("find unfinished tasks", err)
	}
	messages, reached, err = s.scanWork(ctx, rows)
	return messages, reached, pgerr.Explain("find unfinished tasks", err)
}

// scanWork makes messages of the rows of unfinished.sql or overtaken.sql, and parks events that have none.
func (s *session) scanWork(ctx context.Context, rows pgx.Rows) (_ []message, reached ledger.Position, err error) {
	defer rows.Close()
	var b batch
	for rows.Next() {
		e, walked, body, err := scanUnfinished(rows)
		if err != nil {
			return nil, 0, err
		}
		reached = walked
		if e.Version > 0 {
			b.add(s.encoder.encode(e, body))
		}
	}
	if err := rows.Err(); err != nil {
		return nil, 0, err
	}
	rows.Close()
	for _, r := range b.rejects {
		if err := s.park(ctx, r.event, r.reason); err != nil {
			return nil, 0, err
		}
	}
	return b.messages, reached, nil
}
