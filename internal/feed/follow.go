package feed

import (
	"context"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// run is a part of a page that one feed has found and another feed delivers.
type run struct {
	from, to Place
	end      int // of its events among the page's events
	window   opening
}

// windowBetween returns the window of the events between two places.
func windowBetween(from, to Place) Window {
	switch {
	case from.isOpen():
		return from.Window
	case to.isOpen():
		return to.Window
	}
	return Window{Seen: from.Seen, Until: to.Seen}
}

// followedPages is the reporting feed's pages after a place.
type followedPages struct {
	isKnown bool // the followed feed passed the place too
	runs    []run
	events  []ledger.Event
	more    bool // pages follow

	aliveUntil time.Time       // until when the followed feed counts as working without a further sign
	next       <-chan struct{} // if there are no runs: closed when a page follows
}

// follow moves the feed over pages that the followed feed has found. It reports false if the feed must read the next
// page by itself, possibly the first page of a window that join has opened. If it is patient, it waits for the
// followed feed while that counts as working: in an open window at most for Gather, otherwise by a page without
// events.
func (f *Feed) follow(ctx context.Context, isPatient bool) (page Page, ok bool, err error) {
	for {
		got := f.options.Follows.pagesAfter(f.database, f.place.Place, f.begun, f.options, &f.free)
		switch {
		case len(got.runs) > 0:
			if isWhole, err := f.isWhole(ctx); err != nil || !isWhole {
				return Page{}, false, err
			}
			if page = f.take(got); len(page.Events) > 0 {
				return page, true, nil
			}
			continue
		case !got.isKnown && !f.place.isOpen():
			f.join()
			return Page{}, false, nil
		case !got.isKnown || !isPatient || !time.Now().Before(got.aliveUntil):
			return Page{}, false, nil
		case !f.place.isOpen():
			return Page{}, true, nil
		}
		d := min(f.options.Gather, time.Until(got.aliveUntil))
		if isNext, err := awaitClosed(ctx, got.next, d); err != nil || !isNext {
			return Page{}, false, err
		}
	}
}

// isWhole reports whether the pages after the feed's place, which the followed feed has read before, contain all
// events that this feed wants: with an archive, none was removed before they were read.
func (f *Feed) isWhole(ctx context.Context) (bool, error) {
	if f.archived == nil {
		return true, nil
	}
	inFiles, inNone, err := archivedBeyond(ctx, f.db, f.place.Seen, nil)
	return inFiles.Events == 0 && inNone.Events == 0, err
}

// take moves the feed over pages and returns them as one.
func (f *Feed) take(got followedPages) Page {
	begin := 0
	for _, r := range got.runs {
		f.place.unaudited.note(f.place.Place, got.events[begin:r.end], f.floor)
		begin, f.place.Place = r.end, r.to
		if r.window.ended.After(f.window.ended) {
			f.window = r.window
		}
	}
	f.rest.polled = f.window.ended // the followed feed reports events after that window
	f.windowLen, f.pageLen = len(got.events), len(got.events)
	f.opened = time.Time{}
	if !got.more {
		f.opened = f.now()
	}
	if len(got.events) == 0 {
		return Page{}
	}
	page := f.newPage(windowBetween(got.runs[0].from, got.runs[0].to), got.events)
	if len(got.runs) > 1 {
		page.runs = got.runs
	}
	return page
}

// join opens a window up to the last edge of the followed feed, if that was read after this feed's edge: an event that
// is visible in a snapshot is visible in each later one of the same database. After that edge the feed follows. It
// never goes back: readWindow then finds that a copy of the data was put back.
func (f *Feed) join() {
	edge, w, ok := f.options.Follows.edgeAfter(f.database, f.window.ended)
	if ok && edge.Top >= f.place.Seen.Top {
		f.openUntil(edge, w)
		f.rest.polled = w.ended
	}
}
