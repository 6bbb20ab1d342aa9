package console

import (
	"context"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

// stateCounts is the number of tasks by state.
type stateCounts map[ledger.State]int64

// add adds the number of tasks of a kind in a state.
func (c stateCounts) add(n ledger.StateCount) { c[n.State] += n.Tasks }

// Available returns the number of tasks that wait for a worker.
func (c stateCounts) Available() int64 { return c[ledger.StateAvailable] }

// Running returns the number of tasks in an attempt.
func (c stateCounts) Running() int64 { return c[ledger.StateRunning] }

// Retrying returns the number of tasks whose last attempt failed.
func (c stateCounts) Retrying() int64 { return c[ledger.StateRetrying] }

// Scheduled returns the number of tasks that wait for a time or for other tasks.
func (c stateCounts) Scheduled() int64 { return c[ledger.StateScheduled] }

// Dead returns the number of dead tasks.
func (c stateCounts) Dead() int64 { return c[ledger.StateDead] }

// manyRows is the number of rows by kind from which they are kept: a page reads them in about 50 ms.
const manyRows = 5000

// readCounts returns the number of tasks by kind and state. The slice must not be changed.
func (h *Handler) readCounts(ctx context.Context) ([]ledger.StateCount, error) {
	return h.counts.Get(ctx, func(ctx context.Context) ([]ledger.StateCount, bool, error) {
		counts, err := projector.ReadCounts(ctx, h.config.DB, "", lists.All)
		return counts, len(counts) >= manyRows, err
	})
}

// pageCounts returns the number of tasks by kind and state, of the kinds that the caller may read: once for a page.
func (h *Handler) pageCounts(ctx context.Context, v *view) (all []ledger.StateCount, err error) {
	if v.counts == nil {
		v.counts, err = h.countsOf(ctx, v.Caller)
	}
	return v.counts, err
}

// countsOf returns the number of tasks by kind and state, of the kinds that a caller may read.
func (h *Handler) countsOf(ctx context.Context, c *api.Caller) (all []ledger.StateCount, err error) {
	counts, err := h.readCounts(ctx)
	for _, n := range counts {
		if c.MayUse(n.Kind) {
			all = append(all, n)
		}
	}
	return all, err
}
