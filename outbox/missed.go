package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// forgetMissed removes the notes of subscribers that do not exist any more.
func (s room) forgetMissed(d *demand) {
	created := make(map[string]time.Time)
	for _, c := range d.subscribers {
		created[c.Name] = c.Created
	}
	maps.DeleteFunc(s.mark.Missed, func(name string, m Missed) bool { return !created[name].Equal(m.Created) })
}

// noteMissed notes in the mark which durable subscribers miss messages if those up to a sequence are removed.
func (s room) noteMissed(ctx context.Context, d *demand, upTo uint64) error {
	for _, c := range d.subscribers {
		if _, noted := s.mark.Missed[c.Name]; noted {
			continue
		}
		floor := ackedUpTo(c, s.state.info.State.LastSeq)
		if floor >= upTo {
			continue
		}
		from, err := s.positionBehind(ctx, floor)
		if err != nil {
			return err
		}
		s.setMissed(ctx, c, from)
	}
	return nil
}

// noteSkipped notes in the mark that durable subscribers miss events from a position on, which are not published.
func (s room) noteSkipped(ctx context.Context, d *demand, from ledger.Position) {
	for _, c := range d.subscribers {
		if m, noted := s.mark.Missed[c.Name]; !noted || m.From > from {
			s.setMissed(ctx, c, from)
		}
	}
}

func (s room) setMissed(ctx context.Context, c *jetstream.ConsumerInfo, from ledger.Position) {
	if s.mark.Missed == nil {
		s.mark.Missed = make(map[string]Missed)
	}
	s.mark.Missed[c.Name] = Missed{From: from, Created: c.Created}
	s.relay.config.Logger.WarnContext(ctx, "a subscriber misses messages that it has not received",
		"consumer", c.Name, "from_position", int64(from))
}

// positionBehind returns the position of the event of the first message behind a sequence, 0 if it has none.
func (s room) positionBehind(ctx context.Context, sequence uint64) (ledger.Position, error) {
	msg, err := s.stream.GetMsg(ctx, sequence+1, jetstream.WithGetMsgSubject(stream.AllSubjects))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the message behind %d: %w", sequence, err)
	}
	m, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
	if err != nil {
		return 0, nil // a foreign message
	}
	return m.Position, nil
}
