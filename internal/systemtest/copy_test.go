package systemtest_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// awaitRefusal waits until the dispatcher has recorded that the database is a copy.
func (r *recovered) awaitRefusal() {
	r.t.Helper()
	r.await("the dispatcher of the copy to refuse", func() bool {
		s, err := dispatcher.ReadStatus(r.t.Context(), r.db)
		return err == nil && !s.Alive && strings.Contains(s.Note, "copy of another database")
	})
}

// clone starts a physical copy of the database on the same NATS, without services.
func (r *recovered) clone() *recovered {
	r.t.Helper()
	backup, err := r.pg.Backup(r.t.Context())
	if errors.Is(err, pgserver.ErrNotInstalled) {
		r.t.Skip(err)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	server, err := backup.Start(r.t.Context(), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = server.Close() })
	clone := &recovered{depot: &depot{t: r.t, nats: r.nats}}
	clone.adopt(server)
	return clone
}

// A physical copy of the database starts beside its original, with services and workers on the same NATS. The relay and
// the dispatcher of the copy refuse, its workers get no task, and the original works as before. When the original has
// ended, the copy can replace it.
func TestCopyBesideItsOriginal(t *testing.T) {
	t.Parallel()
	r := newRecovered(t, nil)
	r.stop()
	r.run("relay", newRelay)
	r.run("projector", newProjector)
	r.run("dispatcher", newDispatcher)
	r.run("parcels", sends)
	r.finished("before", 10)
	r.letters(5)
	r.published()
	clone := r.clone()
	stopLetters := clone.startStoppable("letters", handles(letter, func(*workers.Job) {}))
	stopParcels := clone.startStoppable("parcels", sends)
	stopDispatcher := clone.startStoppable("dispatcher", newDispatcher)
	clone.awaitRefusal()
	clone.enqueue(parcel, "of-the-copy")
	for range 2 { // a service tries again
		var original *outbox.CopyError
		if err := clone.refusal("relay", newRelay); !errors.As(err, &original) {
			t.Fatalf("the relay of the copy ended with %v, want a refusal", err)
		}
		status, err := relays.ReadStatus(t.Context(), clone.db, nil, outbox.StreamConfig{})
		if err != nil || status.Relay == nil || !status.Relay.Refused ||
			!strings.Contains(status.Relay.Note, "copy of another database") {
			t.Errorf("status of the copy: %+v, %v", status.Relay, err)
		}
	}

	r.finished("beside", 20)
	r.run("letters", handles(letter, func(*workers.Job) {}))
	r.await("the letters of the original to be done", func() bool {
		return r.count(`select count(*) from effect where kind = 'letter.send'`) == 5
	})
	if n := r.count(`select count(*) from effect`); n != 35 {
		t.Errorf("%d effects in the original, want 35", n)
	}
	if n := r.count(`select count(*) from taskledger.event where type in ('released', 'interrupted')`); n != 0 {
		t.Errorf("%d releases in the original", n)
	}
	status, err := relays.ReadStatus(t.Context(), r.db, nil, outbox.StreamConfig{})
	if err != nil || status.Relay == nil || !status.Relay.Alive || status.Relay.Refused || status.Relay.Note != "" {
		t.Errorf("status of the original: %+v, %v", status.Relay, err)
	}
	if n := clone.count(`select count(*) from effect where kind = 'letter.send'`); n != 0 {
		t.Errorf("the worker of the copy did %d tasks of the original", n)
	}
	if n := clone.count(`select count(*) from effect where biz_id = 'of-the-copy'`); n != 0 {
		t.Error("the copy has begun its own task")
	}

	r.stop()
	var writer *outbox.ForeignWriterError
	if err := clone.refusal("relay", newRelay); !errors.As(err, &writer) {
		t.Fatalf("without a relay of the original, that of the copy ended with %v, want a refusal", err)
	}
	if n := clone.count(`select count(*) from effect where biz_id = 'of-the-copy'`); n != 0 {
		t.Error("while its relay refuses, the copy has begun its task")
	}
	stopDispatcher()
	stopLetters()
	stopParcels()
	if err := r.pg.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := relays.RebuildStream(t.Context(), clone.db, clone.jetStream(), nil); err != nil {
		t.Fatal(err)
	}
	clone.serve()
	clone.run("letters", handles(letter, func(*workers.Job) {}))
	clone.finished("new", 1)
	clone.await("the tasks of the copy to be done", func() bool {
		return clone.count(`select count(distinct (kind, biz_id)) from effect`) == 17
	})
	if n := clone.count(`select count(*) from effect`); n != 17 {
		t.Errorf("%d effects in the copy, want 17", n)
	}
}

// The stream is off, so no relay finds out that the database is a copy. The dispatcher of the copy refuses while the
// original works, and while the original's dispatcher restarts.
func TestCopyWithoutARelay(t *testing.T) {
	t.Parallel()
	r := newRecovered(t, nil)
	r.stop()
	turnOff(t, r.depot)
	stopDispatcher := r.startStoppable("dispatcher", newDispatcher)
	r.run("projector", newProjector)
	r.run("parcels", sends)
	r.finished("before", 10)
	clone := r.clone()
	clone.startStoppable("parcels", sends)
	clone.startStoppable("dispatcher", newDispatcher)
	clone.enqueue(parcel, "of-the-copy")
	clone.awaitRefusal()
	stopDispatcher()
	nc, err := outbox.Connect(r.nats.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	questions, err := nc.SubscribeSync(stream.Copies)
	if err != nil {
		t.Fatal(err)
	}
	for range 12 { // at least two whole rounds, and nothing answers
		if _, err := questions.NextMsg(time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	stopDispatcher = r.startStoppable("dispatcher", newDispatcher)
	defer stopDispatcher()
	r.finished("beside", 20)
	if n := clone.count(`select count(*) from effect where biz_id = 'of-the-copy'`); n != 0 {
		t.Error("the copy has begun its task")
	}
}

// A database whose relay has worked once goes on without it after a restart of PostgreSQL.
func TestDatabaseWithoutARelayRestarts(t *testing.T) {
	t.Parallel()
	r := newRecovered(t, nil)
	r.finished("before", 10) // with a relay
	r.stop()
	turnOff(t, r.depot)
	if err := r.pg.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.pg.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.run("projector", newProjector)
	r.run("dispatcher", newDispatcher)
	r.run("parcels", sends)
	r.finished("after", 10)
}

func turnOff(t *testing.T, d *depot) {
	t.Helper()
	if err := relays.TurnOff(t.Context(), d.db); err != nil {
		t.Fatal(err)
	}
}
