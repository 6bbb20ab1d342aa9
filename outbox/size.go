package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// sizes has the size of a work message by kind, in bytes: the largest of the last ones, so that many small messages
// do not hide a few large ones.
type sizes map[ledger.Kind]int64

// decay: each smaller message lowers the size by one part in decay of the difference.
const decay = 64

// note adds messages that are to be published.
func (s sizes) note(messages []message, limit int64) {
	for i := range messages {
		m := &messages[i]
		if !m.waits(limit) {
			continue
		}
		size := s[m.event.Kind]
		s[m.event.Kind] = max(m.size, size-(size-m.size)/decay)
	}
}

// waits reports whether a message waits for workers in a stream with a limit.
func (m *message) waits(limit int64) bool {
	return m.event.Type.WakesWorkers() && reserved.IsWork(m.event.Kind) && (limit == 0 || m.size <= limit)
}

// readDemand reads the demand, with the sizes of the messages and with the withheld kinds. It adds the messages of a
// page that is to be published.
func (s backlog) readDemand(ctx context.Context, page []message) (*demand, error) {
	d, err := readDemand(ctx, s.stream, s.state.info.State)
	if err != nil {
		return nil, err
	}
	for kind := range s.mark.Withheld.all() {
		d.kind(kind, 0)
	}
	for _, m := range page {
		if m.waits(s.state.limit()) && !s.isOfWithheldKind(m) {
			d.kind(m.event.Kind, s.state.info.State.LastSeq).page += m.size
		}
	}
	return d, s.measure(ctx, d)
}

// maxSizeRequests is the greatest number of kinds whose first message is read in one measurement.
const maxSizeRequests = 64

// measure sets the size of a message of each kind, and forgets other kinds. The first relay after a start has published
// nothing yet, and reads the first message of the kinds with the most messages; those of others have the average size.
func (s backlog) measure(ctx context.Context, d *demand) error {
	known := s.relay.sizes
	maps.DeleteFunc(known, func(kind ledger.Kind, _ int64) bool { return d.kinds[kind] == nil })
	var unknown []ledger.Kind
	for kind, k := range d.kinds {
		if _, ok := known[kind]; !ok && k.all() > 0 {
			unknown = append(unknown, kind)
		}
	}
	slices.SortFunc(unknown, func(a, b ledger.Kind) int { return cmp.Compare(d.kinds[b].all(), d.kinds[a].all()) })
	for i, kind := range unknown {
		size := s.state.messageSize()
		if i < maxSizeRequests {
			var err error
			if size, err = s.firstSize(ctx, kind); err != nil {
				return err
			}
		}
		known[kind] = size
	}
	for kind, k := range d.kinds {
		if k.size = known[kind]; k.size == 0 {
			k.size = s.state.messageSize()
		}
	}
	d.sum()
	return nil
}

// correct raises the sizes of messages in a stream where all messages wait for workers, if they take more room.
func (s backlog) correct(d *demand) {
	estimate := d.bytes
	if estimate == 0 || estimate >= s.state.bytes {
		return
	}
	for kind, k := range d.kinds {
		k.size = k.size*s.state.bytes/estimate + 1
		s.relay.sizes[kind] = k.size
	}
	d.sum()
}

// firstSize returns the size of the first work message of a kind, or the average size of all messages.
func (s backlog) firstSize(ctx context.Context, kind ledger.Kind) (int64, error) {
	for _, subject := range stream.WorkSubjects(kind, ledger.AllShards) {
		m, err := s.stream.GetMsg(ctx, s.state.info.State.FirstSeq, jetstream.WithGetMsgSubject(subject))
		switch {
		case err == nil:
			return stream.Size(&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}), nil
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			return 0, fmt.Errorf("read the first message on %s: %w", subject, err)
		}
	}
	return s.state.messageSize(), nil
}
