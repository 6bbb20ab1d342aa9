package outbox

import (
	"context"
	_ "embed"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/unfinished.sql
var unfinishedSQL string

func newOwed(to int64) *owed { return &owed{To: ledger.Position(to)} }

// payOwed publishes the work messages that a loss left owing. How far it got is noted, so that
// a relay that crashes in between leaves the rest to the next.
func (s *session) payOwed(ctx context.Context) error {
	for s.mark.Owed != nil {
		messages, reached, err := s.unfinished(ctx, *s.mark.Owed)
		if err != nil {
			return err
		}
		fault.Point(FaultPage)
		if err := s.send(ctx, messages); err != nil {
			return err
		}
		fault.Point(FaultPublished)
		if reached == 0 || reached >= s.mark.Owed.To {
			s.mark.Owed = nil
		} else {
			s.mark.Owed = &owed{After: reached, To: s.mark.Owed.To}
		}
		if s.mark.Owed != nil && len(messages) == 0 {
			continue // looking again costs less than a cursor row
		}
		if err := s.note(ctx); err != nil {
			return err
		}
	}
	return nil
}

// unfinished returns the next work messages owed and the position they were looked for up to,
// 0 if there are no more.
func (s *session) unfinished(ctx context.Context, o owed) (messages []message, reached ledger.Position, err error) {
	rows, err := s.relay.config.DB.Query(ctx, unfinishedSQL, int64(o.After), int64(o.To))
	if err != nil {
		return nil, 0, pgerr.Explain("find unfinished tasks", err)
	}
	defer rows.Close()
	var b batch
	for rows.Next() {
		e, walked, body, err := scanUnfinished(rows)
		if err != nil {
			return nil, 0, pgerr.Explain("find unfinished tasks", err)
		}
		reached = walked
		if e.Version > 0 {
			b.add(s.encode(e, body))
		}
	}
	if err := rows.Err(); err != nil {
		return nil, 0, pgerr.Explain("find unfinished tasks", err)
	}
	rows.Close()
	for _, p := range b.unfit {
		if err := s.park(ctx, p.event, p.reason); err != nil {
			return nil, 0, err
		}
	}
	return b.messages, reached, nil
}
