package health

import (
	"context"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/cache"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

const (
	// manyKinds is the number of kinds above which numbers by kind are cached. Reading that many kinds takes some 100
	// ms.
	manyKinds = 5000
	// longRead: if reading a few unhandled kinds takes this long, the result is cached, because there are many other
	// kinds.
	longRead = 500 * time.Millisecond
)

// Numbers caches the numbers by kind between reports, for ledgers with thousands of kinds: reading 100,000 kinds takes
// seconds. Reports return the last numbers read; reading takes at most a twentieth of the time. With fewer kinds, each
// report reads them again. The zero Numbers is ready for use. It is safe for concurrent use.
type Numbers struct {
	unhandled cache.Value[unhandledKinds]
	counts    cache.Value[[]ledger.StateCount]
}

// unhandledKinds is the kinds without workers at a time.
type unhandledKinds struct {
	kinds []operator.UnhandledKind
	at    time.Time // by the database's clock
}

// readUnhandled returns the kinds without workers. The slice may be changed.
func (c Config) readUnhandled(ctx context.Context, r *Report) (unhandledKinds, error) {
	at := r.At
	found, err := c.Numbers.unhandled.Get(ctx, func(ctx context.Context) (unhandledKinds, bool, error) {
		begun := time.Now()
		kinds, err := operator.ReadUnhandled(ctx, c.DB)
		return unhandledKinds{kinds, at}, len(kinds) >= manyKinds || time.Since(begun) > longRead, err
	})
	found.kinds = slices.Clone(found.kinds)
	return found, err
}

// readTasks returns the number of tasks by kind and state. The slice may be changed.
func (c Config) readTasks(ctx context.Context) ([]ledger.StateCount, error) {
	counts, err := c.Numbers.counts.Get(ctx, func(ctx context.Context) ([]ledger.StateCount, bool, error) {
		counts, err := projector.ReadCounts(ctx, c.DB, "", lists.All)
		return counts, len(counts) >= manyKinds, err
	})
	return slices.Clone(counts), err
}
