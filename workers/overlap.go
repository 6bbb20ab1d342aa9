package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// OverlapError reports that a worker was refused because the kind has consumers for some of its shards but not for
// exactly the same ones. Tasks of those shards would be delivered to both.
type OverlapError struct {
	Kind   ledger.Kind
	Wanted ledger.ShardSet
	Found  []ledger.ShardSet // of the consumers that overlap
}

func (e *OverlapError) Error() string {
	found := make([]string, len(e.Found))
	for i, shards := range e.Found {
		found[i] = shards.String()
	}
	return fmt.Sprintf(
		"kind %s: shards %s overlap those of other consumers: %s: give all its workers the same shards and "+
			"shard groups, or remove the unused consumers: taskledger worker retire %s %s",
		e.Kind,
		e.Wanted,
		strings.Join(found, " and "),
		e.Kind,
		found[0],
	)
}

// layoutPause is the least pause between two reads of the layout, as a multiple of how long the last one took. With
// thousands of kinds a read takes long, and must not be most of the work.
const layoutPause = 10

// layout is a cached list of the stream's consumers: the shards of each kind's. Kinds that start together share one
// read of it.
type layout struct {
	installation string // that the stream must belong to; set by Run before it starts kinds

	mu       sync.Mutex // guards the fields below
	readAt   time.Time
	readTime time.Duration
	shards   map[ledger.Kind][]ledger.ShardSet
}

// after returns the shards of a kind's consumers, as read after a moment. It refuses the stream of another ledger:
// its messages would be ghosts here, and acknowledging them would take them from that ledger's workers.
func (l *layout) after(
	ctx context.Context, js jetstream.JetStream, kind ledger.Kind, moment time.Time,
) ([]ledger.ShardSet, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readAt.After(moment) {
		return l.shards[kind], nil
	}
	_ = loop.Sleep(
		ctx, time.Until(l.readAt.Add(layoutPause*l.readTime)),
	) // callers that arrive meanwhile share the read
	now := time.Now()
	s, err := js.Stream(ctx, stream.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf(
			"stream %s does not exist yet: run taskledger serve, whose relay creates it: %w", stream.Name, err,
		)
	}
	if err != nil {
		return nil, fmt.Errorf("list consumers: %w", err)
	}
	if err := stream.CheckOwner(s.CachedInfo(), l.installation); err != nil {
		return nil, fmt.Errorf("%w: %w", errConsumerRefused, err)
	}
	found := make(map[ledger.Kind][]ledger.ShardSet)
	lister := s.ConsumerNames(ctx)
	for name := range lister.Name() {
		if kind, shards, ok := stream.Served(name); ok {
			found[kind] = append(found[kind], shards)
		}
	}
	if err := lister.Err(); err != nil {
		return nil, fmt.Errorf("list consumers: %w", err)
	}
	l.readAt, l.readTime, l.shards = now, time.Since(now), found
	return found[kind], nil
}

// checkOverlap returns an [*OverlapError] if the kind has consumers that overlap these shards without being for the
// same. It is called before and after consumers are created: of two workers that create some at once, at least one
// sees those of the other.
func (k *kind) checkOverlap(ctx context.Context, shards ledger.ShardSet) error {
	found, err := k.pool.layout.after(ctx, k.pool.js, k.Name, time.Now())
	if err != nil {
		return err
	}
	var others []ledger.ShardSet
	for _, other := range found {
		if other != shards && other.Overlaps(shards) {
			others = append(others, other)
		}
	}
	if others == nil {
		return nil
	}
	slices.Sort(others)
	return fmt.Errorf("%w: %w", errConsumerRefused, &OverlapError{Kind: k.Name, Wanted: shards, Found: others})
}
