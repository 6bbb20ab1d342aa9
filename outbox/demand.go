package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// demand is what the consumers of the stream still need of it, when it was read.
type demand struct {
	acked uint64 // every durable consumer has acknowledged the messages up to here
	kinds map[ledger.Kind]*kindDemand
	bytes int64 // of all kinds, see sum
	// unservedBytes are those of kinds without workers.
	unservedBytes int64
	unserved      map[ledger.Kind]ledger.ShardSet // shards without consumers of which there are work messages
	types         map[ledger.EventType]bool       // of the messages on the stream
	subscribers   []*jetstream.ConsumerInfo       // durable consumers that are not of workers
}

// kindDemand is the demand of the workers of a kind.
type kindDemand struct {
	acked     uint64          // its consumers have acknowledged the messages up to here
	delivered uint64          // and have received those up to here
	served    ledger.ShardSet // shards with consumers
	waiting   int64           // messages that its consumers have not acknowledged
	unserved  int64           // messages of shards without consumers
	size      int64           // of a message, in bytes: see backlog.measure
	page      int64           // bytes of its messages that are to be published
}

func (k *kindDemand) all() int64   { return k.waiting + k.unserved }
func (k *kindDemand) bytes() int64 { return k.all()*k.size + k.page }

// bytesOf returns the bytes of messages in some shards, which are all or all with consumers: a kind that has messages
// withheld in all shards without consumers is judged by the others.
func (k *kindDemand) bytesOf(shards ledger.ShardSet) int64 {
	if shards&^k.served == 0 {
		return k.waiting*k.size + k.page
	}
	return k.bytes()
}

// sum sets the bytes of all kinds.
func (d *demand) sum() {
	d.bytes, d.unservedBytes = 0, 0
	for _, k := range d.kinds {
		d.bytes += k.bytes()
		if k.served == 0 {
			d.unservedBytes += k.bytes()
		}
	}
}

// subscribed returns the sequence up to which all durable subscribers have acknowledged their messages, at most last.
func (d *demand) subscribed(last uint64) uint64 {
	upTo := last
	for _, c := range d.subscribers {
		upTo = min(upTo, ackedUpTo(c, last))
	}
	return upTo
}

// notePublished adds messages of withheld kinds that were published.
func (d *demand) notePublished(messages []message) {
	for _, m := range messages {
		k := d.kinds[m.event.Kind]
		if k.served.Has(m.event.Shard) {
			k.waiting++
		} else {
			k.unserved++
		}
		d.bytes += k.size
		if k.served == 0 {
			d.unservedBytes += k.size
		}
	}
}

// missing returns how many messages to publish of a withheld kind with workers, 0 while these have enough to do.
// allowance is how many bytes of them may wait.
func (k *kindDemand) missing(allowance int64) int64 {
	target := max(min(allowance/k.size, maxRefill), minRefill)
	if k.waiting > target/2 {
		return 0
	}
	return max(target-k.waiting, 1)
}

// kind returns the demand of a kind, at first without consumers. last is the last message of the stream.
func (d *demand) kind(name ledger.Kind, last uint64) *kindDemand {
	k := d.kinds[name]
	if k == nil {
		k = &kindDemand{acked: last, delivered: last}
		d.kinds[name] = k
	}
	return k
}

// readDemand reads the demand from the consumers and the subjects of the stream, whose state was read before.
func readDemand(ctx context.Context, s jetstream.Stream, state jetstream.StreamState) (*demand, error) {
	last := state.LastSeq
	d := &demand{acked: last, kinds: make(map[ledger.Kind]*kindDemand), types: make(map[ledger.EventType]bool),
		unserved: make(map[ledger.Kind]ledger.ShardSet)}
	listing, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	consumers := s.ListConsumers(listing)
	for c := range consumers.Info() {
		if c.Config.Durable == "" {
			continue // it vanishes with its client
		}
		floor := ackedUpTo(c, last)
		d.acked = min(d.acked, floor)
		name, shards, ok := stream.ServedBy(c.Config)
		if !ok {
			d.subscribers = append(d.subscribers, c)
			continue
		}
		k := d.kind(name, last)
		k.acked = min(k.acked, floor)
		k.delivered = min(k.delivered, deliveredUpTo(c, last))
		k.waiting += int64(c.NumPending) + int64(c.NumAckPending)
		if c.Name == stream.Durable(name, shards) { // the later one of its two consumers
			k.served |= shards
		}
	}
	if err := consumers.Err(); err != nil {
		return nil, fmt.Errorf("list consumers of stream %s: %w", stream.Name, err)
	}
	return d, d.readUnserved(ctx, s, last)
}

// ackedUpTo returns the sequence up to which a consumer has acknowledged its messages, at most last.
func ackedUpTo(c *jetstream.ConsumerInfo, last uint64) uint64 {
	switch {
	case c.NumAckPending > 0:
		return c.AckFloor.Stream
	case c.NumPending > 0:
		return max(c.AckFloor.Stream, c.Delivered.Stream)
	}
	return last
}

// deliveredUpTo returns the sequence up to which a consumer has received its messages, at most last. Its worker holds
// those that it has not acknowledged. If the worker is killed, the reconciler finds their tasks.
func deliveredUpTo(c *jetstream.ConsumerInfo, last uint64) uint64 {
	if c.NumPending > 0 {
		return c.Delivered.Stream
	}
	return last
}

// readUnserved adds the work messages of kinds and shards without consumers, except those of reserved kinds:
// a service finishes their tasks from the database.
func (d *demand) readUnserved(ctx context.Context, s jetstream.Stream, last uint64) error {
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(stream.AllSubjects))
	if err != nil {
		return fmt.Errorf("list subjects of stream %s: %w", stream.Name, err)
	}
	for subject, messages := range info.State.Subjects {
		shard, t, name, err := stream.ParseSubject(subject)
		if err != nil {
			continue
		}
		d.types[t] = true
		if !t.WakesWorkers() || !reserved.IsWork(name) {
			continue
		}
		if k := d.kind(name, last); !k.served.Has(shard) {
			k.unserved += int64(messages)
			d.unserved[name] |= ledger.ShardRange(shard, shard)
		}
	}
	return nil
}

// maxUnservedRequests is the greatest number of subjects without consumers whose first messages the relay asks for.
const maxUnservedRequests = 64

// purgeable returns the sequence up to which no durable consumer and no kind without consumers needs a message. Beside
// too many subjects without consumers that is only what precedes all work messages.
func (d *demand) purgeable(ctx context.Context, s jetstream.Stream, begin uint64) (uint64, error) {
	if d.acked < begin {
		return 0, nil
	}
	var subjects []string
	for name, shards := range d.unserved {
		if d.kinds[name].served == 0 {
			shards = ledger.AllShards // which takes one filter
		}
		if subjects = append(subjects, stream.WorkSubjects(name, shards)...); len(subjects) > maxUnservedRequests {
			subjects = stream.WorkPatterns()
			break
		}
	}
	upTo := d.acked
	for _, subject := range subjects {
		first, err := s.GetMsg(ctx, begin, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("find the first message on %s: %w", subject, err)
		}
		upTo = min(upTo, first.Sequence-1)
	}
	return upTo, nil
}

// clearable returns filters of subjects, and the sequence up to which no worker needs their messages, at most upTo. If
// keepsInFlight, workers need the messages that they have received and not acknowledged.
func (d *demand) clearable(upTo uint64, keepsInFlight bool) map[string]uint64 {
	filters := make(map[string]uint64)
	for t := range d.types {
		if !t.WakesWorkers() {
			filters[stream.Pattern("*", string(t), ">")] = upTo
			filters[stream.Bookkeeping(t)] = upTo
			continue
		}
		filters[stream.Bookkeeping(t)] = upTo
		for name, k := range d.kinds {
			shards := k.served
			if d.unserved[name] == 0 {
				shards = ledger.AllShards // which takes one filter
			}
			sequence := min(k.delivered, upTo)
			if keepsInFlight {
				sequence = min(k.acked, upTo)
			}
			if sequence > 0 {
				for _, subject := range stream.Subjects(t, name, shards) {
					filters[subject] = sequence
				}
			}
		}
	}
	return filters
}
