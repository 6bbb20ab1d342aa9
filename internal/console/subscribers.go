package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
)

const (
	// lagSteps is the number of steps of a chart of the lag in the last hour.
	lagSteps = 30
	// lagStep is the length of a step.
	lagStep = 2 * time.Minute
	// rateSteps is the number of steps over which a rate is measured.
	rateSteps = 2
	// maxCharts is the number of subscribers on a page whose histories are read.
	maxCharts = 10
)

// subscriberView is a subscriber with its last hour.
type subscriberView struct {
	subscribers.Subscriber
	State    *subscribers.State // nil: it keeps no tables and parks no events
	Spark    spark              // of the lag
	HasRate  bool
	PerSec   float64 // events that it passes in a second
	Arriving float64 // events that are committed in a second
	Distance float64 // events between it and the newest one, about
}

// Rate returns how many events the subscriber passes, "" if that is not known.
func (s *subscriberView) Rate() string {
	if !s.HasRate {
		return ""
	}
	return perSecond(s.PerSec)
}

// CaughtUp returns when the subscriber has passed all events, if it goes on so.
func (s *subscriberView) CaughtUp() string {
	gain := s.PerSec - s.Arriving
	switch {
	case s.Lag == 0:
		return "now"
	case !s.HasRate || s.IsPaused:
		return ""
	case s.PerSec == 0:
		return "no, it does not move"
	case gain <= 0:
		return "no, it falls behind"
	}
	return "in " + age(time.Duration(s.Distance/gain*float64(time.Second)))
}

// Note returns why the subscriber does not go on, "" if it does.
func (s *subscriberView) Note() string {
	switch {
	case !s.IsLocal:
		return "its place is of another database: taskledger rebase"
	case s.IsPaused:
		return "paused"
	case s.State == nil:
		return ""
	case s.State.Failing != nil:
		f := s.State.Failing
		return fmt.Sprintf("stopped at position %d, %s version %d, after %s: %s", f.Position, f.Key, f.Version,
			failures(f.Failures), f.Error)
	case s.State.Work != nil && s.State.Work.Result == nil:
		return fmt.Sprintf("%s: %s of %s events", s.State.Work.Name, printable.Count(s.State.Work.Done),
			printable.Count(s.State.Work.Total))
	}
	return ""
}

func failures(n int) string {
	if n == 1 {
		return "1 failure"
	}
	return printable.Count(int64(n)) + " failures"
}

// CanSeek reports whether the subscriber can be moved: a move would make tables wrong.
func (s *subscriberView) CanSeek() bool { return s.State == nil || len(s.State.Tables) == 0 }

func (h *Handler) showSubscribers(ctx context.Context, r *http.Request, v *view) error {
	after, err := afterName(r)
	if err != nil {
		return err
	}
	found, err := subscribers.ReadAll(ctx, h.config.DB, after, pageTasks+1)
	if err != nil {
		return err
	}
	states, err := subscribers.ReadStates(ctx, h.config.DB)
	if err != nil {
		return err
	}
	all := make([]*subscriberView, len(found))
	for i, s := range found {
		all[i] = &subscriberView{Subscriber: s}
		if at := slices.IndexFunc(states, func(o subscribers.State) bool { return o.Name == s.Name }); at >= 0 {
			all[i].State = &states[at]
		}
		if i < maxCharts && s.IsLocal {
			points, err := subscribers.ReadHistory(ctx, h.config.DB, s.Name, lagStep, lagSteps)
			if err != nil {
				return err
			}
			all[i].addHistory(points)
		}
	}
	v.Data = newList(all, func(s *subscriberView) string { return s.Name })
	return nil
}

// addHistory adds figures that are computed from the points of the last hour.
func (s *subscriberView) addHistory(points []subscribers.Point) {
	lags := make([]float64, len(points))
	most := 0.0
	for i, p := range points {
		if p.Newest > p.Position {
			lags[i] = float64(p.Newest - p.Position)
		}
		most = max(most, lags[i])
	}
	last, before := points[len(points)-1], points[len(points)-1-rateSteps]
	s.Distance = max(float64(s.Lag), lags[len(lags)-1])
	if s.Lag == 0 {
		lags[len(lags)-1] = 0 // it has skipped the events between
	}
	s.Spark = newSpark("at most "+printable.Count(int64(most))+" events behind in the last hour", lags, nil)
	length := (rateSteps * lagStep).Seconds()
	s.HasRate = true
	s.PerSec = max(0, float64(last.Position-before.Position)/length)
	if before.Newest > 0 {
		s.Arriving = max(0, float64(last.Newest-before.Newest)/length)
	}
}

// changeSubscriber pauses, resumes or moves a subscriber.
func (h *Handler) changeSubscriber(ctx context.Context, r *http.Request, c api.Caller, reason string) (result, error) {
	name, act := r.PostForm.Get("name"), api.SubscriberAct(r.PostForm.Get("act"))
	var to feed.Start
	text := fmt.Sprintf("%s is %sd.", name, act)
	if act == api.SeekSubscriber {
		var err error
		if to, err = parseStart(r.PostForm.Get("to")); err != nil {
			return result{}, err
		}
		text = fmt.Sprintf("%s continues at %s.", name, to)
	}
	return result{done: text}, h.config.API.ChangeSubscriber(ctx, c, name, act, to, reason)
}

// parseStart returns the place that a text names: now, beginning, a position or a time.
func parseStart(text string) (feed.Start, error) {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
		return feed.After(ledger.Position(n)), nil
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return feed.At(at), nil
	}
	switch text {
	case "now":
		return feed.Now(), nil
	case "beginning":
		return feed.After(0), nil
	}
	return feed.Start{}, invalid("the place must be now, beginning, a position or a time as 2026-12-24T18:00:00Z")
}
