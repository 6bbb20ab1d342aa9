package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// UnbegunKind is a kind with workers whose oldest messages no worker has received yet.
type UnbegunKind struct {
	Kind     ledger.Kind `json:"kind"`
	Waiting  uint64      `json:"waiting"`
	OldestAt time.Time   `json:"oldest_waiting_at"` // when the task of the oldest became available
}

// maxUnbegunReads bounds the messages that a status reads.
const maxUnbegunReads = 200

// readUnbegun returns the kinds whose consumers have messages that no worker has received, with the oldest of each. It
// takes one request for each such filter of a consumer, at most maxUnbegunReads.
func readUnbegun(ctx context.Context, s jetstream.Stream) ([]UnbegunKind, error) {
	all := []UnbegunKind{}
	index := make(map[ledger.Kind]int)
	reads := 0
	consumers := s.ListConsumers(ctx)
	for c := range consumers.Info() {
		kind, _, ok := stream.ServedBy(c.Config)
		if !ok || c.NumPending == 0 {
			continue
		}
		filters := c.Config.FilterSubjects
		if c.Config.FilterSubject != "" {
			filters = []string{c.Config.FilterSubject}
		}
		var oldest time.Time
		for _, filter := range filters {
			if reads++; reads > maxUnbegunReads {
				break
			}
			at, err := recordedAt(ctx, s, c.Delivered.Stream+1, filter)
			if err != nil {
				return nil, err
			}
			if !at.IsZero() && (oldest.IsZero() || at.Before(oldest)) {
				oldest = at
			}
		}
		if oldest.IsZero() {
			continue
		}
		i, found := index[kind]
		if !found {
			i = len(all)
			index[kind] = i
			all = append(all, UnbegunKind{Kind: kind, OldestAt: oldest})
		}
		all[i].Waiting += c.NumPending
		if oldest.Before(all[i].OldestAt) {
			all[i].OldestAt = oldest
		}
	}
	return all, consumers.Err()
}

// recordedAt returns when the event of the first message from a sequence on was recorded; zero if there is no message.
func recordedAt(ctx context.Context, s jetstream.Stream, from uint64, filter string) (time.Time, error) {
	msg, err := s.GetMsg(ctx, from, jetstream.WithGetMsgSubject(filter))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	m, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
	if err != nil {
		return time.Time{}, nil //nolint:nilerr // workers count it as malformed
	}
	return m.RecordedAt, nil
}
