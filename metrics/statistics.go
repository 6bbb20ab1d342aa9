package metrics

import (
	"context"
	"time"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

// openFor is how long the statistics of a minute may still change. Statistics of a transaction that was open for longer
// are not counted here.
const openFor = 5 * time.Minute

// statistics are the sums of a ledger's statistics since the minute of the first read. A read covers the minutes that
// may have changed since the previous read.
type statistics struct {
	closedTo time.Time                       // the minutes before it do not change
	closed   map[string]*projector.KindStats // their sums
	open     map[string]*projector.KindStats // sums of the minutes from closedTo on
	labels   labels
}

// read adds the changes since the last read. r is the current report.
func (s *statistics) read(ctx context.Context, db ledger.DB, r health.Report) error {
	if s.labels == nil {
		s.labels, s.closed = make(labels), make(map[string]*projector.KindStats)
		s.closedTo = r.At.Truncate(time.Minute)
	}
	// A kind is exported from its first task on, so that its counters begin at 0 where they can.
	for _, n := range r.Tasks {
		s.addTo(s.closed, projector.KindStats{Kind: n.Kind})
	}
	rows, err := projector.ReadKindStats(ctx, db, "", s.closedTo, r.At.Add(time.Hour))
	if err != nil {
		return err
	}
	projected := r.At
	if r.Projection.Waiting > 0 && r.Projection.OldestAt.Before(projected) {
		projected = r.Projection.OldestAt
	}
	closedTo := projected.Add(-openFor).Truncate(time.Minute)
	s.open = make(map[string]*projector.KindStats)
	for _, row := range rows {
		if row.Minute.Before(closedTo) {
			s.addTo(s.closed, row)
		} else {
			s.addTo(s.open, row)
		}
	}
	if closedTo.After(s.closedTo) {
		s.closedTo = closedTo
	}
	return nil
}

func (s *statistics) addTo(sums map[string]*projector.KindStats, row projector.KindStats) {
	label := s.labels.of(row.Kind)
	sum := sums[label]
	if sum == nil {
		sum = &projector.KindStats{}
		sums[label] = sum
	}
	sum.Add(row)
}

// totals returns the sums of each label.
func (s *statistics) totals() map[string]*projector.KindStats {
	sums := make(map[string]*projector.KindStats)
	for _, part := range []map[string]*projector.KindStats{s.closed, s.open} {
		for label, row := range part {
			if sums[label] == nil {
				sums[label] = &projector.KindStats{}
			}
			sums[label].Add(*row)
		}
	}
	return sums
}
