package console

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/subscriber_pauses.sql
var subscriberPausesSQL string

const (
	// nearEvents and nearAge are how far behind a subscriber may be that keeps up: some events are always on their way.
	nearEvents, nearAge = 10, time.Minute
	// recordedPauses is the number of records among which the pauses of a page are found.
	recordedPauses = 200
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
	Pause    *pause             // nil: it is not paused, or no recent record is found
	Spark    spark              // of the lag
	HasRate  bool
	PerSec   float64 // events that it passes in a second
	Arriving float64 // events that are committed in a second
	Distance float64 // events between it and the newest one, about
}

// pause is a pause of a kind, a schedule or a subscriber.
type pause struct {
	Actor, Reason string // "": none
	At            time.Time
}

// Rate returns how many events the subscriber passes, "" if that is not known.
func (s *subscriberView) Rate() string {
	if !s.HasRate {
		return ""
	}
	if s.PerSec == 0 {
		return "0"
	}
	return perSecond(s.PerSec)
}

// IsNear reports whether the subscriber is at most a few events or seconds behind.
func (s *subscriberView) IsNear() bool {
	late := time.Duration(s.Age) * time.Millisecond
	return s.Lag == 0 || late < lateAge || s.Lag <= nearEvents && late < nearAge
}

// IsStopped reports whether an event stops the subscriber, or its place is of another database.
func (s *subscriberView) IsStopped() bool {
	return !s.IsLocal || s.State != nil && s.State.Failing != nil
}

// CatchesUp returns when the subscriber has passed all events, if it goes on so; "" if that is not known.
func (s *subscriberView) CatchesUp() string {
	gain := s.PerSec - s.Arriving
	switch {
	case s.IsStopped():
		return "no, it is stopped"
	case s.IsPaused:
		return "once resumed"
	case s.IsNear():
		return "keeps up"
	case !s.HasRate:
		return ""
	case s.PerSec == 0:
		return "no, it does not move"
	case gain <= 0:
		return "no, it falls behind"
	}
	return "in " + age(time.Duration(s.Distance/gain*float64(time.Second)))
}

// IsBehind reports whether the subscriber is paused or stopped, or does not catch up.
func (s *subscriberView) IsBehind() bool {
	return s.IsPaused || strings.HasPrefix(s.CatchesUp(), "no,")
}

// Word returns the state of the subscriber in a word.
func (s *subscriberView) Word() string {
	switch {
	case s.IsStopped():
		return "stopped"
	case s.IsPaused:
		return "paused"
	case s.State != nil && s.State.Work != nil && s.State.Work.Result == nil:
		return "rebuilding"
	case !s.IsNear():
		return "behind"
	}
	return "follows"
}

// Note returns why the subscriber stands, or a remark; "" if there is nothing to add.
func (s *subscriberView) Note() string {
	switch {
	case !s.IsLocal:
		return "its place is of another database: taskledger rebase"
	case s.State == nil:
		return ""
	case s.State.Failing != nil:
		f := s.State.Failing
		return fmt.Sprintf("at position %d, %s version %d, after %s: %s", f.Position, f.Key, f.Version,
			failures(f.Failures), f.Error)
	case s.State.Work != nil && s.State.Work.Result == nil:
		return fmt.Sprintf("%s: %s of %s events", s.State.Work.Name, printable.Count(s.State.Work.Done),
			printable.Count(s.State.Work.Total))
	}
	return ""
}

// rank returns a number for the order by trouble, the worst with the greatest one.
func (s *subscriberView) rank() int {
	switch {
	case s.IsStopped():
		return 3
	case s.IsPaused:
		return 2
	case s.State != nil && s.State.Parked > 0:
		return 1
	}
	return 0
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
	}
	d := newList(all, func(s *subscriberView) string { return s.Name })
	v.Data = d
	slices.SortStableFunc(d.Items, func(a, b *subscriberView) int {
		return cmp.Or(cmp.Compare(b.rank(), a.rank()), cmp.Compare(b.Age, a.Age))
	})
	for i, s := range d.Items {
		if i < maxCharts && s.IsLocal {
			points, err := subscribers.ReadHistory(ctx, h.config.DB, s.Name, lagStep, lagSteps)
			if err != nil {
				return err
			}
			s.addHistory(points)
		}
	}
	var names []string
	for _, s := range d.Items {
		if s.IsPaused {
			names = append(names, s.Name)
		}
	}
	pauses, err := h.readPauses(ctx, names)
	for _, s := range d.Items {
		s.Pause = pauses[s.Name]
	}
	return err
}

// readPauses returns the records of the pauses of paused subscribers, by name.
func (h *Handler) readPauses(ctx context.Context, names []string) (map[string]*pause, error) {
	if len(names) == 0 {
		return nil, nil
	}
	rows, err := h.config.DB.Query(ctx, subscriberPausesSQL, names, int64(recordedPauses))
	if err != nil {
		return nil, pgerr.Explain("read pauses of subscribers", err)
	}
	defer rows.Close()
	all := map[string]*pause{}
	for rows.Next() {
		var name string
		var p pause
		if err := rows.Scan(&name, &p.Actor, pgquery.Micros(&p.At), &p.Reason); err != nil {
			return nil, pgerr.Explain("read pauses of subscribers", err)
		}
		all[name] = &p
	}
	return all, pgerr.Explain("read pauses of subscribers", rows.Err())
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
