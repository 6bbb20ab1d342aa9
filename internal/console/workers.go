package console

import (
	"cmp"
	"context"
	_ "embed"
	"net/http"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

//go:embed sql/lost_workers.sql
var lostWorkersSQL string

const (
	// heldTasks bounds the unfinished tasks that are searched for tasks of lost workers.
	heldTasks = 1000
	// maxLostRows is the number of rows, by lost worker and kind, that are read.
	maxLostRows = 2000
	// lostLong is the time after which a lost worker without tasks is folded.
	lostLong = time.Hour
)

// workerView is a worker with the sums of its kinds.
type workerView struct {
	workers.Worker
	HasLoad                           bool
	Slots, Running, Overdue, InFlight int
	PerMinute                         float64
	Used                              float64 // of the slots, in percent
	lost
}

// lost describes a lost worker.
type lost struct {
	HeardAt time.Time // when it last renewed its lease; zero: unknown
	Held    int64     // running tasks that it holds, of the kinds that the caller may use
	IsMore  bool      // it may hold others
}

// maxKindsInRow is the number of kinds in the row of a worker, those with the most running tasks. The others are
// folded.
const maxKindsInRow = 2

// First returns the kinds in the row.
func (w workerView) First() []workers.WorkerKind { return w.Kinds[:min(len(w.Kinds), maxKindsInRow)] }

// Rest returns the folded kinds.
func (w workerView) Rest() []workers.WorkerKind { return w.Kinds[min(len(w.Kinds), maxKindsInRow):] }

// Called returns the names of workers over HTTP.
func (w workerView) Called() string { return printable.Names(w.Names, 3) }

// IsFull reports whether all slots are taken.
func (w workerView) IsFull() bool { return w.Slots > 0 && w.Running >= w.Slots }

func newWorkerView(w workers.Worker) workerView {
	v := workerView{Worker: w}
	for _, k := range w.Kinds {
		if l := k.Load; l != nil {
			v.HasLoad = true
			v.Slots += l.Slots
			v.Running += l.Running
			v.Overdue += l.Overdue
			v.InFlight += l.InFlight
			v.PerMinute += l.PerMinute
		}
	}
	running := func(k workers.WorkerKind) int {
		if k.Load == nil {
			return 0
		}
		return k.Load.Running
	}
	slices.SortStableFunc(v.Kinds, func(a, b workers.WorkerKind) int { return cmp.Compare(running(b), running(a)) })
	if v.Slots > 0 {
		v.Used = min(100, 100*float64(v.Running)/float64(v.Slots))
	}
	return v
}

// workersData is the content of the page Workers.
type workersData struct {
	*listData[workers.Worker]
	Live, Lost, LostLong []workerView
	LostElsewhere        int  // lost workers that are not on this page
	IsLater              bool // this is not the first page
	Unhandled            []unhandledKinds
}

// unhandledKinds are kinds of one level, those with the most tasks first.
type unhandledKinds struct{ all []unhandledKind }

// Level returns the level of the kinds.
func (u unhandledKinds) Level() level { return u.all[0].Level() }

// First returns the kinds that the page names.
func (u unhandledKinds) First() []unhandledKind { return u.all[:min(len(u.all), maxUnhandled)] }

// Others returns the number of the other kinds.
func (u unhandledKinds) Others() int { return len(u.all) - len(u.First()) }

// maxUnhandled is the number of kinds without a worker that the page names.
const maxUnhandled = 5

// addUnhandled adds the kinds without a live worker, those for which the condition holds first.
func (h *Handler) addUnhandled(ctx context.Context, v *view, d *workersData) error {
	live, err := workers.ReadLiveCounts(ctx, h.config.DB)
	if err != nil {
		return err
	}
	unhandled, err := h.findUnhandled(ctx, v, live)
	var due, waiting unhandledKinds
	for _, u := range unhandled {
		if u.IsDue {
			due.all = append(due.all, *u)
		} else {
			waiting.all = append(waiting.all, *u)
		}
	}
	for _, all := range []unhandledKinds{due, waiting} {
		if len(all.all) > 0 {
			slices.SortFunc(all.all, compareUnhandled)
			d.Unhandled = append(d.Unhandled, all)
		}
	}
	return err
}

// showWorkers shows a page of the workers, the lost ones first, with the kinds that the caller may use.
func (h *Handler) showWorkers(ctx context.Context, r *http.Request, v *view) error {
	after, err := afterName(r)
	if err != nil {
		return err
	}
	d := &workersData{IsLater: after != ""}
	v.Data = d
	name := func(w workers.Worker) string { return w.ID }
	isVisible := func(w workers.Worker) bool { return len(w.Kinds) > 0 || !v.Caller.IsLimited() }
	d.listData, err = readList(after, name, isVisible, func(after string, limit int) ([]workers.Worker, error) {
		all, err := workers.ReadWorkers(ctx, h.config.DB, after, limit)
		for i := range all {
			w := &all[i]
			w.Kinds = slices.DeleteFunc(w.Kinds, func(k workers.WorkerKind) bool { return !v.Caller.MayUse(k.Kind) })
		}
		return all, err
	})
	if err != nil {
		return err
	}
	if !d.IsLater {
		if err := h.addUnhandled(ctx, v, d); err != nil {
			return err
		}
	}
	all, err := h.readLost(ctx, v.Caller.MayUse)
	if err != nil {
		return err
	}
	for _, w := range d.Items {
		if !w.Alive { // the last report is out of date
			for i := range w.Kinds {
				w.Kinds[i].Load = nil
			}
		}
		one := newWorkerView(w)
		one.lost = all[w.ID]
		switch {
		case w.Alive:
			d.Live = append(d.Live, one)
		case one.Held == 0 && v.At.Sub(one.HeardAt) > lostLong:
			d.LostLong = append(d.LostLong, one)
		default:
			d.Lost = append(d.Lost, one)
		}
	}
	slices.SortStableFunc(d.Lost, func(a, b workerView) int {
		return cmp.Or(cmp.Compare(b.Held, a.Held), b.HeardAt.Compare(a.HeardAt))
	})
	if !v.Caller.IsLimited() {
		d.LostElsewhere = max(0, len(all)-len(d.Lost)-len(d.LostLong))
	}
	return nil
}

// readLost returns the lost workers by id, with their tasks of the kinds that may be counted.
func (h *Handler) readLost(ctx context.Context, mayCount func(ledger.Kind) bool) (map[string]lost, error) {
	rows, err := h.config.DB.Query(ctx, lostWorkersSQL, int64(heldTasks), int64(maxLostRows))
	if err != nil {
		return nil, pgerr.Explain("read lost workers", err)
	}
	defer rows.Close()
	all := map[string]lost{}
	for rows.Next() {
		var id, kind string
		var one lost
		if err := rows.Scan(&id, pgquery.Micros(&one.HeardAt), &kind, &one.Held, &one.IsMore); err != nil {
			return nil, pgerr.Explain("read lost workers", err)
		}
		if !mayCount(ledger.Kind(kind)) {
			one.Held = 0
		}
		one.Held += all[id].Held
		all[id] = one
	}
	return all, pgerr.Explain("read lost workers", rows.Err())
}
