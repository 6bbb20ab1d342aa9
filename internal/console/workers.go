package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/workers"
)

// workerView is a worker with the sums of its kinds.
type workerView struct {
	workers.Worker
	HasLoad                           bool
	Slots, Running, Overdue, InFlight int
	PerMinute                         float64
	Used                              float64 // of the slots, in percent
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
	Live, Lost []workerView
	IsLater    bool // this is not the first page
}

// showWorkers shows a page of the workers, with the kinds that the caller may use.
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
	for _, w := range d.Items {
		if w.Alive {
			d.Live = append(d.Live, newWorkerView(w))
		} else {
			d.Lost = append(d.Lost, newWorkerView(w))
		}
	}
	return nil
}
