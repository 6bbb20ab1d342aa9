package systemtest_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// lines collects a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) contain(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// A physical copy of the database starts beside its original, with services and workers on the same NATS. The relay of
// the copy refuses, its workers take no message, and the original works as before. When the original has
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
	backup, err := r.pg.Backup(t.Context())
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	server, err := backup.Start(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	clone := &recovered{depot: &depot{t: t, nats: r.nats}}
	clone.adopt(server)

	log := &lines{}
	logged := func(db *pgxpool.Pool, nc *nats.Conn, _ *slog.Logger) (runner, error) {
		return handles(letter, func(*workers.Job) {})(db, nc, slog.New(slog.NewTextHandler(log, nil)))
	}
	stopLetters := clone.startStoppable("letters", logged)
	r.await("the worker of the copy to wait", func() bool { return log.contain("the worker waits for a relay") })
	clone.enqueue(parcel, "of-the-copy")
	for range 2 { // a service tries again
		var original *outbox.CopyError
		if err := clone.refusal("relay", newRelay); !errors.As(err, &original) {
			t.Fatalf("the relay of the copy ended with %v, want a refusal", err)
		}
		status, err := outbox.ReadStatus(t.Context(), clone.db, nil, outbox.StreamConfig{})
		if err != nil || status.Relay == nil || !status.Relay.Refused ||
			!strings.Contains(status.Relay.Note, "copy of another one") {
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
	status, err := outbox.ReadStatus(t.Context(), r.db, nil, outbox.StreamConfig{})
	if err != nil || status.Relay == nil || !status.Relay.Alive || status.Relay.Refused || status.Relay.Note != "" {
		t.Errorf("status of the original: %+v, %v", status.Relay, err)
	}
	if n := clone.count(`select count(*) from effect where kind = 'letter.send'`); n != 0 {
		t.Errorf("the worker of the copy did %d tasks of the original", n)
	}

	r.stop()
	var writer *outbox.ForeignWriterError
	if err := clone.refusal("relay", newRelay); !errors.As(err, &writer) {
		t.Fatalf("without a relay of the original, that of the copy ended with %v, want a refusal", err)
	}
	stopLetters()
	if err := r.pg.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := outbox.RebuildStream(t.Context(), clone.db, clone.jetStream(), nil); err != nil {
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
