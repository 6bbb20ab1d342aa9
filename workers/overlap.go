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

// OverlapError says that a worker was refused, since others work, or did, on some of its shards
// but not on the same ones: tasks there would be delivered to both.
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
	return fmt.Sprintf("kind %s: shards %s overlap those of other consumers: %s; give all its workers the same shards and shard groups, "+
		"or, if nobody is to work on those any more: taskledger worker retire %s %s",
		e.Kind, e.Wanted, strings.Join(found, " and "), e.Kind, found[0])
}

// lookPause is for how many times as long as a look took there is no other: where kinds begin by the
// thousand each takes long, and looks are not to be most of the work.
const lookPause = 10

// layout is what the stream has of consumers: for which shards of each kind. Kinds that begin
// together share a look at it.
type layout struct {
	installation string // whose stream it must be; Run sets it

	mu    sync.Mutex
	asked time.Time
	took  time.Duration
	found map[ledger.Kind][]ledger.ShardSet
}

// after returns the shards of a kind's consumers, as they were at some time after a moment. The
// stream of another ledger is refused: to this one its messages are ghosts, and acknowledging them
// would take them from those who can work on them.
func (l *layout) after(ctx context.Context, js jetstream.JetStream, kind ledger.Kind, moment time.Time) ([]ledger.ShardSet, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked.After(moment) {
		return l.found[kind], nil
	}
	_ = loop.Sleep(ctx, time.Until(l.asked.Add(lookPause*l.took))) // with those who will ask meanwhile
	asked := time.Now()
	s, err := js.Stream(ctx, stream.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("there is no stream %s yet: a relay makes it (run: taskledger serve): %w", stream.Name, err)
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
	l.asked, l.took, l.found = asked, time.Since(asked), found
	return found[kind], nil
}

// checkOverlap returns an [*OverlapError] if the kind has consumers for some of these shards and
// not for the same. Who makes consumers looks before and after: of two that make some at once, at
// least one sees those of the other.
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
