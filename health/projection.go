package health

import (
	"context"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
	"github.com/taskledger/taskledger/projector"
)

// Projection is the lag of the projection behind the ledger.
type Projection struct {
	Waiting         int       `json:"waiting"`        // events not projected yet
	WaitingCapped   bool      `json:"waiting_capped"` // there are at least Waiting
	OldestAt        time.Time `json:"oldest_waiting_at,omitzero"`
	OldestWaitingMS int64     `json:"oldest_waiting_ms"`
}

func checkProjection(ctx context.Context, c Config, r *Report) error {
	lag, err := projector.ReadLag(ctx, c.DB)
	if err != nil {
		return err
	}
	r.Projection = Projection{
		Waiting: lag.Events, WaitingCapped: lag.Events == projector.MaxLag,
		OldestAt: lag.Oldest, OldestWaitingMS: lag.Age.Milliseconds(),
	}
	switch err := feed.CheckOrigin(ctx, c.DB, projector.Reader); {
	case feed.IsRefusal(err):
		r.add(Condition{Name: ProjectorRefused, Text: "the projector refuses to continue: " + err.Error()})
	case err != nil:
		return err
	}
	if isExceeded(lag.Age, c.Thresholds.ProjectionLag) {
		r.add(Condition{
			Name: ProjectionLag, Since: lag.Oldest, Threshold: c.Thresholds.ProjectionLag,
			Text: lagText("projected", lag.Age, c.Thresholds.ProjectionLag), Cure: lagCure(r, ProjectorRefused),
		})
	}
	return nil
}

func checkIllegal(ctx context.Context, c Config, r *Report) error {
	illegal, err := projector.ReadIllegal(ctx, c.DB)
	if err != nil || illegal.Events == 0 {
		return err
	}
	r.add(Condition{
		Name: EventsIllegal, Since: illegal.Since,
		Text: fmt.Sprintf("illegal events: %s; the last one: %s", printable.Count(int64(illegal.Events)), illegal.Last),
	})
	return nil
}

// readCounts reads numbers that are no condition.
func readCounts(ctx context.Context, c Config, r *Report) (err error) {
	if r.Tasks, err = projector.ReadCounts(ctx, c.DB); err != nil {
		return err
	}
	r.Rejected, err = ledger.ReadRejected(ctx, c.DB)
	return err
}
