package systemtest_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// windowHolder is a tracer of a relay's connections. It fails the cursor row that follows the first one within a
// window, once that is released, and then holds each statement that opens a window until its session ends.
type windowHolder struct {
	released chan struct{} // closed by the test

	mu       sync.Mutex // guards the fields below
	isWithin bool       // the relay's cursor is within a window
	hasCut   bool       // a cursor row has failed
	held     int        // windows
}

func (h *windowHolder) TraceQueryStart(
	ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData,
) context.Context {
	switch {
	case len(d.Args) == 17 && d.Args[0] == "relay" && strings.Contains(d.SQL, "insert into taskledger.cursor"):
		return h.cursor(ctx, d.Args[8] != int64(0))
	case strings.Contains(d.SQL, "taskledger.asleep_until") && h.isHolding():
		<-ctx.Done()
	}
	return ctx
}

func (*windowHolder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (h *windowHolder) cursor(ctx context.Context, isWithin bool) context.Context {
	if !h.cuts(isWithin) {
		return ctx
	}
	<-h.released
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hasCut = true
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// cuts reports whether the next cursor row is to fail. isWithin reports whether it is within a window.
func (h *windowHolder) cuts(isWithin bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	cuts := h.isWithin && !h.hasCut
	h.isWithin = isWithin
	return cuts
}

func (h *windowHolder) isHolding() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.hasCut {
		return false
	}
	h.held++
	return true
}

// holds returns how many windows were held.
func (h *windowHolder) holds() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held
}

// A session ends behind its cursor row, which is within a window, after it has published a task of a later window. The
// next session publishes the rest of the earlier window again. The projector has passed that one, and not the task: the
// task's message stays, although the stream needs room.
func TestMessageOfALaterWindowStays(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	js := d.jetStream()
	stop := d.startStoppable("relay", smallRelay)
	d.await("the stream", func() bool { _, err := js.Stream(t.Context(), stream.Name); return err == nil })
	stop()
	limit := func(bytes uint64) {
		t.Helper()
		s, err := js.Stream(t.Context(), stream.Name)
		if err != nil {
			t.Fatal(err)
		}
		config := s.CachedInfo().Config
		config.MaxBytes = int64(bytes)
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	limit(32 << 20)

	const tasks = stream.MaxPage + 500
	entries := make([]ledger.Entry, tasks)
	for i := range entries {
		entries[i].Key = ledger.Key{Kind: "waiting", BizID: ledger.BizID(fmt.Sprint(i))}
	}
	if _, err := ledger.EnqueueMany(t.Context(), d.db, entries); err != nil {
		t.Fatal(err)
	}
	holder := &windowHolder{released: make(chan struct{})}
	d.start("relay", func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
		config := db.Config()
		config.ConnConfig.Tracer = holder
		traced, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			return nil, err
		}
		t.Cleanup(traced.Close)
		return outbox.New(outbox.Config{
			DB: traced, NATS: nc, Logger: log, LeaseTTL: time.Second, CheckEvery: 50 * time.Millisecond,
			Stream: outbox.StreamConfig{MaxBytes: 256 << 10},
		})
	})
	release := sync.OnceFunc(func() { close(holder.released) })
	t.Cleanup(release)
	onStream := func(kind ledger.Kind) int { return workMessages(t, js)[kind] }
	d.await("the first window on the stream", func() bool { return onStream("waiting") == tasks })
	stop = d.startStoppable("projector", newProjector)
	d.await("the projector to pass it", func() bool {
		return d.count(fmt.Sprintf(`select count(*)/%d from taskledger.tasks`, tasks)) == 1
	})
	stop()
	task := ledger.Key{Kind: "later", BizID: "1"}
	if _, err := ledger.Enqueue(t.Context(), d.db, task, nil, nil); err != nil {
		t.Fatal(err)
	}
	d.await("a task of a later window on the stream", func() bool { return onStream(task.Kind) == 1 })
	release()
	d.await("the rest of the first window to be published again", func() bool { return holder.holds() > 0 })
	s, err := js.Stream(t.Context(), stream.Name)
	if err != nil {
		t.Fatal(err)
	}
	limit(s.CachedInfo().State.Bytes / 100 * 115)
	sessions := holder.holds()
	d.await("a session that has made room", func() bool { return holder.holds() > sessions })
	if n := onStream(task.Kind); n != 1 {
		t.Errorf("%d messages of the task that waits, want 1", n)
	}
}
