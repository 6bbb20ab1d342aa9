package health

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

// RegisteredProjection is a registered projection with its lag.
type RegisteredProjection struct {
	projector.Registered
	Projection
}

// Projection is the lag of a projection behind the ledger.
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

func projectionOf(lag projector.Lag) Projection {
	return Projection{
		Waiting: lag.Events, WaitingCapped: lag.Events == projector.MaxLag,
		OldestAt: lag.Oldest, OldestWaitingMS: lag.Age.Milliseconds(),
	}
}

// checkProjections examines the registered projections.
func checkProjections(ctx context.Context, c Config, r *Report) error {
	all, err := projector.ReadProjections(ctx, c.DB)
	if err != nil {
		return err
	}
	for _, p := range all {
		lag, err := projector.ReadLagOf(ctx, c.DB, p.Name)
		if err != nil {
			return err
		}
		r.Projections = append(r.Projections, RegisteredProjection{p, projectionOf(lag)})
		switch f := p.Failing; {
		case f != nil:
			task := f.Key.String() + "/" + strconv.Itoa(int(f.Version))
			reason, _, _ := strings.Cut(f.Error, "\n") // a stack may follow
			r.add(Condition{
				Name: ProjectionFailed, About: p.Name, Since: f.Since,
				Text: fmt.Sprintf("projection %s cannot apply the event at position %d, %s, and has tried %s: %s",
					p.Name, f.Position, printable.Short(task, maxTask), times(f.Failures),
					printable.Short(reason, maxReason)),
			})
		case p.Name != projector.TasksName && !isBuilt(p, r.At) && isExceeded(lag.Age, c.Thresholds[ProjectionLag]):
			r.add(Condition{
				Name: ProjectionLag, About: p.Name, Since: lag.Oldest, Threshold: c.Thresholds[ProjectionLag],
				Text: "projection " + p.Name + ": " + lagText("projected", lag.Age, c.Thresholds[ProjectionLag]),
				Cure: "is the program that runs this projection running?",
			})
		}
		if p.Parked > 0 {
			r.add(Condition{
				Name: ProjectionParked, About: p.Name,
				Text: fmt.Sprintf("projection %s has parked events: %s", p.Name, printable.Counted(int64(p.Parked))),
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

// isBuilt reports whether new tables of a projection are being built. Until then the tables in use may be late. After a
// deploy the program of their version is gone, and after a rebase nothing is applied to them.
func isBuilt(p projector.Registered, now time.Time) bool {
	w := p.Work
	return w != nil && w.Name == projector.WorkRebuild && w.Result == nil && now.Sub(w.At) < buildSilence
}

// buildSilence is the time without progress after which a build counts as stopped.
const buildSilence = time.Minute

func checkIllegal(ctx context.Context, c Config, r *Report) error {
	illegal, err := projector.ReadIllegal(ctx, c.DB)
	if err != nil || illegal.Events == 0 {
		return err
	}
	which := "the last one"
	if illegal.Events == projector.MaxIllegal {
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
