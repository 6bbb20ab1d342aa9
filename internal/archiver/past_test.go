package archiver_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// past is the archive as readers of the feed use it.
var past = archive.Source{Open: openDirectory}

// archiveAll archives all finished tasks of some kinds, whatever subscribers have read.
func (f *fixture) archiveAll(place string, kinds ...ledger.Kind) {
	f.T.Helper()
	f.Project()
	db := f.As("archiver")
	o := archiver.Options{Files: archiver.In(db, archive.Directory(place), place), Kinds: kinds, Hold: time.Nanosecond}
	if r, err := archiver.Run(f.Context(), db, o); err != nil || r.Tasks == 0 || r.Held > 0 {
		f.T.Fatalf("%+v, %v", r, err)
	}
}

// all returns the events of the ledger's tables but for records of acts.
func (f *fixture) all() (events []ledger.Event) {
	f.T.Helper()
	for e, err := range ledger.Events(f.Context(), f.DB, ledger.Range{}) {
		if err != nil {
			f.T.Fatal(err)
		}
		events = append(events, e)
	}
	return withoutActs(events)
}

func withoutActs(events []ledger.Event) []ledger.Event {
	isAct := func(e ledger.Event) bool { return e.Kind == "taskledger.operation" }
	return slices.DeleteFunc(slices.Clone(events), isAct)
}

// reader is a subscriber that reads the feed in small pages.
type reader struct {
	f    *fixture
	feed *feed.Feed
	got  []ledger.Event
}

// open opens the feed of a subscriber, as a process does that begins.
func (f *fixture) open(name string) *reader {
	f.T.Helper()
	reading, err := feed.Open(f.Context(), f.DB, "subscriber/"+name, &feed.Options{PageSize: 2, Archive: past})
	if err != nil {
		f.T.Fatal(err)
	}
	return &reader{f: f, feed: reading}
}

// read reads pages, all if n is negative.
func (r *reader) read(n int) {
	r.f.T.Helper()
	for ; n != 0; n-- {
		page, ok, err := r.feed.Poll(r.f.Context())
		if err != nil {
			r.f.T.Fatal(err)
		}
		if !ok {
			return
		}
		if len(page.Events) > 2 {
			r.f.T.Fatalf("a page of %d events", len(page.Events))
		}
		if err := page.Advance(r.f.Context(), nil, nil); err != nil {
			r.f.T.Fatal(err)
		}
		r.got = append(r.got, page.Events...)
	}
}

func (r *reader) reopen(name string) {
	r.f.T.Helper()
	r.feed = r.f.open(name).feed
}

func (f *fixture) wantEvents(got, want []ledger.Event) {
	f.T.Helper()
	if diff := difference.Of(want, withoutActs(got)); diff != "" {
		f.T.Error(diff)
	}
}

// interleave makes finished tasks of two kinds and an unfinished one, whose events are interleaved.
func (f *fixture) interleave() {
	f.T.Helper()
	ids := []string{"1", "2", "3", "4"}
	for _, id := range ids {
		ledgertest.Enqueue(f.T, f.DB, key(id), `{"n":`+id+`}`)
		ledgertest.Enqueue(f.T, f.DB, ledger.Key{Kind: "mail.send", BizID: ledger.BizID(id)}, `{}`)
	}
	ledgertest.Enqueue(f.T, f.DB, key("waits"), `{}`)
	for _, id := range ids {
		ledgertest.Append(f.T, f.DB, key(id), ledger.EventStarted, ledger.EventSucceeded)
		ledgertest.Append(f.T, f.DB, ledger.Key{Kind: "mail.send", BizID: ledger.BizID(id)}, ledger.EventStarted,
			ledger.EventSucceeded)
	}
}

// A subscriber that begins reads archived events among those of the tables, each once, in order: while the archive
// removes more between two of its pages, and after its process was killed.
func TestSubscriberBeginsInTheArchive(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.interleave()
	want, place := f.all(), t.TempDir()
	f.archiveAll(place, kind)
	r := f.open("coupons")
	r.read(3)
	f.archiveAll(place, "mail.send")
	r.read(3)
	r.reopen("coupons")
	r.read(1)
	ledgertest.Append(t, f.DB, key("waits"), ledger.EventStarted, ledger.EventSucceeded)
	end := f.all()
	f.archiveAll(place, kind)
	r.read(-1)
	f.wantEvents(r.got, append(want, end[len(end)-2:]...))
}

// A reader that was away for longer than the archive waits gets what was removed meanwhile, and nothing again: not even
// what a transaction had recorded before the reader's place and committed after.
func TestReaderBehindReadsTheArchive(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1")
	late, err := f.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Enqueue(t.Context(), late, key("late"), nil, nil); err != nil {
		t.Fatal(err)
	}
	f.finish("2")
	r := f.open("coupons")
	r.read(-1)
	if len(r.got) != 6 {
		t.Fatal(r.got)
	}
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	ledgertest.Append(t, f.DB, key("late"), ledger.EventStarted, ledger.EventSucceeded)
	f.finish("3")
	want := slices.DeleteFunc(f.all(), func(e ledger.Event) bool { return e.BizID == "1" || e.BizID == "2" })
	f.archiveAll(t.TempDir())
	r.got = nil
	r.reopen("coupons")
	r.read(-1)
	f.wantEvents(r.got, want)
	r.reopen("coupons")
	if r.read(-1); len(withoutActs(r.got)) != len(want) {
		t.Errorf("again: %v", r.got[len(want):])
	}
}

// A reader that follows another feed, which reads no archive, gets archived events in their place all the same: those
// removed before the pages of the other feed, and those removed after.
func TestFollowerReadsTheArchive(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	found := feed.NewFindings()
	leader, err := feed.Open(t.Context(), f.DB, "subscriber/leader",
		&feed.Options{AuditEvery: -1, PageSize: 4, Reports: found})
	if err != nil {
		t.Fatal(err)
	}
	lead := func() {
		for {
			page, ok, err := leader.Poll(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return
			}
			if err := page.Advance(t.Context(), nil, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	lead()
	following, err := feed.Open(t.Context(), f.DB, "subscriber/coupons",
		&feed.Options{AuditEvery: -1, PageSize: 2, Follows: found, Archive: past})
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{f: f, feed: following}
	f.finish("before")
	lead()
	r.read(-1)
	place := t.TempDir()
	f.interleave()
	want := f.all()
	f.archiveAll(place, kind)
	lead()
	f.archiveAll(place, "mail.send")
	r.read(-1)
	f.wantEvents(r.got, want)
	f.finish("last")
	end := f.all()
	lead()
	r.read(1)
	f.archiveAll(place)
	r.read(-1)
	want = append(want, end[len(end)-3:]...)
	f.wantEvents(r.got, want)
}

// While an archive is away, a reader waits with an error that names it, and continues afterwards.
func TestReaderWaitsForTheArchive(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.interleave()
	want, place := f.all(), t.TempDir()+"/archive"
	f.archiveAll(place, kind)
	r := f.open("coupons")
	r.read(2)
	r.reopen("coupons")
	if err := os.Rename(place, place+"-away"); err != nil {
		t.Fatal(err)
	}
	_, _, err := r.feed.Poll(t.Context())
	unreadable, ok := errors.AsType[*archive.UnreadableError](err)
	if !ok || !strings.Contains(unreadable.Error(), place) {
		t.Fatalf("without its archive: %v", err)
	}
	if err := os.Rename(place+"-away", place); err != nil {
		t.Fatal(err)
	}
	r.read(-1)
	f.wantEvents(r.got, want)
}

// A range contains archived events, those too that are archived while it is read.
func TestRangeContainsArchivedEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.interleave()
	var entries []ledger.Entry
	for i := range 2500 { // more than a page
		entries = append(entries, ledger.Entry{Key: key(fmt.Sprint("waits-", i))})
	}
	if _, err := ledger.EnqueueMany(t.Context(), f.DB, entries); err != nil {
		t.Fatal(err)
	}
	f.finish("last")
	place, want := t.TempDir(), f.all()
	to, err := ledger.MomentOf(t.Context(), f.DB, want[len(want)-1].Position)
	if err != nil {
		t.Fatal(err)
	}
	f.archiveAll(place, "mail.send")
	read := func(r ledger.Range, during func()) (got []ledger.Event) {
		past.AddTo(&r)
		r.To = to
		for e, err := range ledger.Events(t.Context(), f.DB, r) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, e); len(got) == 1 && during != nil {
				during()
			}
		}
		return got
	}
	f.wantEvents(read(ledger.Range{}, func() { f.archiveAll(place, kind) }), want)
	f.wantEvents(read(ledger.Range{}, nil), want)
	f.wantEvents(read(ledger.Range{StartAfter: want[3].Position}, nil), want[4:])
	isOther := func(e ledger.Event) bool { return e.Kind != "mail.send" || e.Version != 2 }
	mails := slices.DeleteFunc(slices.Clone(want), isOther)
	f.wantEvents(read(ledger.Range{Kinds: []ledger.Kind{"mail.send"}, Types: []ledger.EventType{ledger.EventStarted}},
		nil), mails)
	begin, err := ledger.MomentFrom(t.Context(), f.DB, want[0].RecordedAt.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	f.wantEvents(read(ledger.Range{From: begin}, nil), want)
	if begin, err = ledger.MomentFrom(t.Context(), f.DB, want[3].RecordedAt); err != nil { // all before are archived
		t.Fatal(err)
	}
	if got := read(ledger.Range{From: begin}, nil); len(got) >= len(want) || got[0].Position <= want[3].Position {
		t.Errorf("%d of %d events, from %s on", len(got), len(want), got[0])
	}
	from, err := ledger.MomentOf(t.Context(), f.DB, want[8].Position) // waits/1
	if err != nil {
		t.Fatal(err)
	}
	f.wantEvents(read(ledger.Range{From: from}, nil), want[9:])
	if from, err = ledger.MomentBefore(t.Context(), f.DB, want[4].Position); err != nil { // archived
		t.Fatal(err)
	}
	f.wantEvents(read(ledger.Range{From: from}, nil), want[4:])
}

// The texts of an erased task do not come back from an old copy of the archive.
func TestErasedTaskStaysErasedInOldCopies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.interleave()
	place := t.TempDir()
	f.archiveAll(place, kind)
	ledgertest.ExecAsOwner(t, f.DB, `
		insert into taskledger.erasure (id, kind, biz_id, until, shard, erased_at, actor, reason)
		values (gen_random_uuid(), 'coupon.send', '2', 1000, 0, now(), 'alice', 'a test')`)
	r := f.open("coupons")
	r.read(-1)
	for _, e := range r.got {
		if e.Kind == kind && e.Version == 1 && e.BizID != "waits" && (len(e.Data) == 0) != (e.BizID == "2") {
			t.Errorf("%s: %s", e, e.Data)
		}
	}
}

// While tasks are finished and archived at the same time, by transactions that commit out of order, each reader gets
// each event once, and those of a task in order.
func TestReadersRaceTheArchive(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const tasks = 60
	f.finish("0")
	place := t.TempDir()
	f.archiveAll(place)
	ended := make(chan error, 1)
	go func() {
		ended <- func() error {
			for i := 1; i < tasks; i += 2 {
				late, err := f.DB.Begin(t.Context())
				if err != nil {
					return err
				}
				k := key(fmt.Sprint(i))
				if _, err = ledger.Enqueue(t.Context(), late, k, nil, nil); err != nil {
					return err
				}
				ledgertest.Enqueue(t, f.DB, key(fmt.Sprint(i+1)), `{}`)
				ledgertest.Append(t, f.DB, key(fmt.Sprint(i+1)), ledger.EventStarted, ledger.EventSucceeded)
				if err := late.Commit(t.Context()); err != nil {
					return err
				}
				ledgertest.Append(t, f.DB, k, ledger.EventStarted, ledger.EventSucceeded)
			}
			return nil
		}()
	}()
	first, other := f.open("first"), f.open("other")
	for isEnded := false; !isEnded; {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			isEnded = true
		default:
		}
		first.read(3)
		if len(first.got)%2 == 0 {
			first.reopen("first")
		}
		f.Project()
		db := f.As("archiver")
		o := archiver.Options{Files: archiver.In(db, archive.Directory(place), place), Hold: time.Nanosecond}
		if _, err := archiver.Run(t.Context(), db, o); err != nil {
			t.Fatal(err)
		}
		other.read(1)
	}
	third := f.open("begins")
	for _, r := range []*reader{first, other, third} {
		r.read(-1)
		next := make(map[ledger.Key]ledger.Version)
		for _, e := range withoutActs(r.got) {
			if next[e.Key]++; e.Version != next[e.Key] {
				t.Fatalf("%s came when version %d was next", e, next[e.Key])
			}
		}
		if n := len(withoutActs(r.got)); n != 3*(tasks+1) || len(next) != tasks+1 {
			t.Errorf("%d events of %d tasks, want %d of %d", n, len(next), 3*(tasks+1), tasks+1)
		}
	}
}
