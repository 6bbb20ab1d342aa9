package archiver_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// quietReader is a reader of the feed that advances each page at once, as services and subscribers do.
type quietReader struct {
	f       *fixture
	db      *pgxpool.Pool
	name    string
	options feed.Options
	feed    *feed.Feed
	missed  int
	log     bytes.Buffer
}

// reader opens a reader at its cursor.
func (f *fixture) reader(role, name string, o feed.Options) *quietReader {
	f.T.Helper()
	r := &quietReader{f: f, db: f.As(role), name: name, options: o}
	r.options.Missed = func(_ context.Context, events int) { r.missed += events }
	r.options.Logger = slog.New(slog.NewTextHandler(&r.log, nil))
	r.open()
	return r
}

func (r *quietReader) open() {
	r.f.T.Helper()
	r.feed = servicetest.Try(feed.Open(r.f.Context(), r.db, r.name, &r.options))(r.f.T)
}

// read reads all events, and returns the ids of their tasks of kind coupon.send. It audits the events before them.
func (r *quietReader) read() (ids []ledger.BizID) {
	r.f.T.Helper()
	for {
		page, ok, err := r.feed.Poll(r.f.Context())
		if err != nil {
			r.f.T.Fatal(r.name, err)
		}
		if !ok {
			return ids
		}
		for _, e := range page.Events {
			if e.Kind == kind {
				ids = append(ids, e.BizID)
			}
		}
		if err := page.Advance(r.f.Context(), nil, nil); err != nil {
			r.f.T.Fatal(r.name, err)
		}
		if page.Last() {
			return ids // no audit follows
		}
	}
}

// readSQL lets a subscriber in SQL pass all events.
func (f *fixture) readSQL() {
	f.T.Helper()
	var page string
	var last int64
	if err := f.As("subscriber").QueryRow(f.Context(), `
		select r.page, r.position from taskledger.read_feed('sql', 100) r order by r.position desc limit 1`,
	).Scan(&page, &last); err != nil {
		f.T.Fatal(err)
	}
	if _, err := f.As("subscriber").Exec(f.Context(), `select taskledger.advance_feed('sql', $1, $2)`, page,
		last); err != nil {
		f.T.Fatal(err)
	}
}

// The ledger is quiet after the last task has ended: no reader gets a further page, with which it would record its
// audit. The archive removes the task nevertheless. All readers go on without a gap, whether they have audited the
// events or not, and whether they go on or begin again.
func TestQuietLedgerIsArchived(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	line := f.reader("relay", feed.LineReader, feed.Options{Relaxed: true, AuditEvery: -1}) // before the first task
	f.finish("1", "2")
	f.Project()
	f.readSQL()
	subscriber := func(name string) *quietReader {
		t.Helper()
		return f.reader("subscriber", "subscriber/"+name, feed.Options{})
	}
	readers := []struct {
		*quietReader

		isAudited, beginsAgain bool
	}{
		{quietReader: f.reader("relay", "relay", feed.Options{Relaxed: true})},
		{quietReader: line, beginsAgain: true},
		{quietReader: subscriber("goes-on")},
		{quietReader: subscriber("goes-on-audited"), isAudited: true},
		{quietReader: subscriber("begins-again"), beginsAgain: true},
		{quietReader: subscriber("begins-again-audited"), isAudited: true, beginsAgain: true},
	}
	for _, r := range readers {
		if ids := r.read(); len(ids) != 6 {
			t.Errorf("%s: %v", r.name, ids)
		}
		if r.isAudited {
			r.read()
		}
	}
	sealAll := func() {
		t.Helper()
		servicetest.Try(seal.Run(t.Context(), f.As("archiver"), nil))(t)
	}
	run := func(what string, tasks, held int64) {
		t.Helper()
		r := servicetest.Try(archiver.Run(t.Context(), f.As("archiver"), archiver.Options{}))(t)
		if r.Tasks != tasks || r.Held != held {
			t.Errorf("%s: %+v", what, r)
		}
	}
	sealAll()
	f.want("unaudited", f.text(`
		select distinct on (c.reader) (c.audited is not null)::text from taskledger.cursor c
		 where c.reader in ('projector', 'relay', 'subscriber/goes-on')
		 order by c.reader, c.n desc`), "true\ntrue\ntrue")
	rows := f.text(`select count(*)::text from taskledger.cursor`)
	run("all have read", 2, 0)
	f.want("rows", f.text(`select count(*)::text from taskledger.cursor`), rows)

	f.finish("3")
	run("not read", 0, 1)
	for _, r := range readers {
		if r.beginsAgain {
			r.open()
		}
		if ids := r.read(); len(ids) != 3 || ids[0] != "3" {
			t.Errorf("%s: %v", r.name, ids)
		}
		r.read()
		if r.log.Len() > 0 || r.missed > 0 {
			t.Errorf("%s: %d missed: %s", r.name, r.missed, &r.log)
		}
	}
	f.Project()
	f.readSQL()
	run("not sealed", 0, 1)
	sealAll()
	run("all have read again", 1, 0)
	f.want("gaps", f.text(`select g.reader from taskledger.archive_gaps g`), "")

	if err := projector.RebuildTasks(t.Context(), ledgertest.As(t, f.DB, ledgertest.Owner), nil); err != nil {
		t.Fatal(err)
	}
	f.Project()
	report := servicetest.Try(projector.Verify(t.Context(), f.As("reader"), nil))(t)
	if len(report.Differences) > 0 {
		t.Errorf("%v", report.Differences)
	}
}

// A task stays until each reader that needs it has read its end.
func TestUnreadTasksAreHeld(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	line := f.reader("relay", feed.LineReader, feed.Options{Relaxed: true, AuditEvery: -1})
	relay := f.reader("relay", "relay", feed.Options{Relaxed: true})
	mails := f.reader("subscriber", "subscriber/mails", feed.Options{})
	want := func(what string, tasks, held int64, by string) {
		t.Helper()
		r := servicetest.Try(archiver.Run(t.Context(), f.As("archiver"), archiver.Options{}))(t)
		if r.Tasks != tasks || r.Held != held || r.HeldBy != by {
			t.Errorf("%s: %+v", what, r)
		}
	}
	all := func() {
		t.Helper()
		f.Project()
		relay.read()
		mails.read()
	}
	f.finish("1")
	all()
	want("the keeper of lines needs no task without an order key", 1, 0, "")

	ordered := &ledger.EnqueueOptions{OrderKey: "a"}
	if _, err := ledger.Enqueue(t.Context(), f.DB, key("2"), nil, ordered); err != nil {
		t.Fatal(err)
	}
	if _, err := f.As("relay").Exec(t.Context(), `
		select from taskledger_internal.advance_lines('{a}')`); err != nil {
		t.Fatal(err)
	}
	ledgertest.Append(t, f.DB, key("2"), ledger.EventStarted, ledger.EventSucceeded)
	tx := servicetest.Try(f.DB.Begin(t.Context()))(t)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if _, err := ledger.Enqueue(t.Context(), tx, key("late"), nil, nil); err != nil {
		t.Fatal(err)
	}
	f.finish("3")
	all()
	if err := tx.Commit(t.Context()); err != nil { // its position is below that of others, which all have read
		t.Fatal(err)
	}
	ledgertest.Append(t, f.DB, key("late"), ledger.EventStarted, ledger.EventSucceeded)
	f.finish("4")
	want("one has an order key, two were not read", 1, 3, "projector")
	all()
	want("the keeper of lines", 2, 1, feed.LineReader)
	line.read()
	want("all have read", 1, 0, "")
}

// The events of a cursor row count as audited once, and only if they are the events that the reader has read.
func TestCursorsAreAudited(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1")
	f.reader("relay", "relay", feed.Options{Relaxed: true}).read()
	read := f.text(`select format('unaudited = %s, unaudited_xor = %s', unaudited, unaudited_xor)
		from taskledger.cursor order by n desc limit 1`)
	for _, row := range []struct{ set, want string }{
		{"unaudited = unaudited + 1", "0"},
		{"unaudited = unaudited - 1", "0"},
		{"unaudited_xor = unaudited_xor # 1", "0"},
		{"until = seen, top = seen_top, bound = seen_bound", "0"},
		{"until = null, top = null, bound = null", "1"},
		{read, "0"}, // it is audited
	} {
		ledgertest.ExecAsOwner(t, f.DB, "update taskledger.cursor set "+read+" where audited is not null")
		ledgertest.ExecAsOwner(t, f.DB, "update taskledger.cursor set "+row.set+" where audited is not null")
		f.want(row.set, f.text("select taskledger_internal.audit_cursors()::text"), row.want)
	}
}
