package health

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/internal/rebuild"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
)

// Projection is the lag of a projection behind the ledger.
type Projection struct {
	Waiting         int       `json:"waiting"`        // events not projected yet
	WaitingCapped   bool      `json:"waiting_capped"` // there are at least Waiting
	OldestAt        time.Time `json:"oldest_waiting_at,omitzero"`
	OldestWaitingMS int64     `json:"oldest_waiting_ms"`
}

func checkProjection(ctx context.Context, c Config, r *Report) error {
	lag, err := projection.ReadLag(ctx, c.DB)
	if err != nil {
		return err
	}
	r.Projection = projectionOf(lag)
	switch err := feed.CheckOrigin(ctx, c.DB, feed.ProjectorReader); {
	case feed.IsRefusal(err):
		r.add(Condition{Name: ProjectorRefused, Text: "the projector refuses to continue: " + err.Error()})
	case err != nil:
		return err
	}
	if isExceeded(lag.Age, c.Thresholds[ProjectionLag]) {
		r.add(Condition{
			Name: ProjectionLag, Since: lag.Oldest, Threshold: c.Thresholds[ProjectionLag],
			Text: lagText("projected", lag.Age, c.Thresholds[ProjectionLag]), Cure: lagCure(r, ProjectorRefused),
		})
	}
	return nil
}

func projectionOf(lag projection.Lag) Projection {
	return Projection{
		Waiting: lag.Events, WaitingCapped: lag.Events == projection.MaxLag,
		OldestAt: lag.Oldest, OldestWaitingMS: lag.Age.Milliseconds(),
	}
}

// checkStates examines the subscribers in the database: the events that stop them or that they have parked.
func checkStates(ctx context.Context, c Config, r *Report) error {
	all, err := subscribers.ReadStates(ctx, c.DB)
	if err != nil {
		return err
	}
	r.SubscriberStates = all
	for _, s := range all {
		if f := s.Failing; f != nil {
			task := f.Key.String() + "/" + strconv.Itoa(int(f.Version))
			reason, _, _ := strings.Cut(f.Error, "\n") // a stack may follow
			r.add(Condition{
				Name: SubscriberFailed, About: s.Name, Since: f.Since,
				Text: fmt.Sprintf("subscriber %s cannot handle the event at position %d, %s, and has tried %s: %s",
					s.Name, f.Position, printable.Short(task, maxTask), times(f.Failures),
					printable.Short(reason, maxReason)),
			})
		}
		if s.Parked > 0 {
			r.add(Condition{
				Name: SubscriberParked, About: s.Name,
				Text: fmt.Sprintf("subscriber %s has parked events: %s", s.Name, printable.Counted(int64(s.Parked))),
			})
		}
	}
	return nil
}

// The length of a task's key and of an error in a condition, in bytes.
const (
	maxTask   = 200
	maxReason = 500
)

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return printable.Count(int64(n)) + " times"
}

// isBuilt reports whether new tables are being built. Until then the tables in use may be late. After a deploy the
// program of their version is gone, and after a rebase nothing is written to them.
func isBuilt(w *rebuild.Work, now time.Time) bool {
	return w != nil && w.Name == rebuild.WorkRebuild && w.Result == nil && now.Sub(w.At) < buildSilence
}

// buildSilence is the time without progress after which a build counts as stopped.
const buildSilence = time.Minute

func checkIllegal(ctx context.Context, c Config, r *Report) error {
	illegal, err := projection.ReadIllegal(ctx, c.DB)
	if err != nil || illegal.Events == 0 {
		return err
	}
	which := "the last one"
	if illegal.Events == projection.MaxIllegal {
		which = "one of them"
	}
	r.add(Condition{
		Name: EventsIllegal, Since: illegal.Since,
		Text: fmt.Sprintf("illegal events: %s; %s: %s", printable.Counted(int64(illegal.Events)), which,
			illegal.Last),
	})
	return nil
}

// readCounts reads numbers that are no condition.
func readCounts(ctx context.Context, c Config, r *Report) (err error) {
	if r.Tasks, err = c.readTasks(ctx); err != nil {
		return err
	}
	r.Rejected, err = ledger.ReadRejected(ctx, c.DB)
	return err
}
