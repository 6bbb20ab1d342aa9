package systemtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
	"github.com/taskledger/taskledger/workers/operator"
)

// Kinds without workers fill their share of a small stream, and some of their tasks are withheld. When all tasks of
// these kinds are cancelled, the stream has room and the kinds are not withheld any more, without workers. A kind whose
// tasks wait keeps its messages, and the cancelled kinds run their next tasks.
func TestFinishedKindsGiveTheirRoomBack(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	d.start("relay", smallRelay)
	d.start("projector", newProjector)
	js := d.jetStream()
	waiting := ledger.Kind("misspelt.waiting")
	var kinds []ledger.Kind
	for i := range 12 {
		kinds = append(kinds, ledger.Kind(fmt.Sprintf("misspelt.k%d", i)))
	}
	d.enqueueLarge(waiting, 3)
	for _, kind := range kinds {
		d.enqueueLarge(kind, 40)
	}
	published := func() bool {
		s, err := outbox.ReadStatus(t.Context(), d.db, nil, outbox.StreamConfig{})
		return err == nil && s.Waiting == 0
	}
	d.await("the relay to publish or withhold the backlogs", published)
	if got := withheldKinds(t, d); len(got) == 0 {
		t.Fatal("no kind is withheld")
	}

	for _, kind := range kinds {
		d.cancelLarge(kind, 40)
	}
	var state string // for a failure
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(state)
		}
	})
	d.await("the cancelled kinds to give their room back", func() bool {
		isPublished, room, withheld := published(), hasRoom(t, d, js), withheldKinds(t, d)
		state = fmt.Sprintf("published %t, room %t, withheld %v", isPublished, room, withheld)
		return isPublished && room && !slices.ContainsFunc(withheld, func(k ledger.Kind) bool {
			return slices.Contains(kinds, k)
		})
	})
	if got := workMessages(t, js)[waiting]; got != 3 {
		t.Errorf("%d messages of the kind whose tasks wait are on the stream, want 3", got)
	}

	again := ledger.MustKind[struct{}](kinds[5])
	d.start("workers", handles(again, func(*workers.Job) {}))
	d.enqueue(again, "again")
	d.await("a new task of a cancelled kind to run", func() bool {
		return d.count(`select count(*) from effect where biz_id = 'again'`) == 1
	})
}

// All tasks of kinds without workers are cancelled while the projector is away, and the relay restarts. When the
// projector has come so far, these kinds are not withheld any more, although no event follows.
func TestFinishedKindsOfARestartedRelay(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	nc, err := outbox.Connect(d.nats.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	relay, err := smallRelay(d.pool(roleOf("relay")), nc, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := startRun(ctx, relay)
	var kinds []ledger.Kind
	for i := range 12 {
		kinds = append(kinds, ledger.Kind(fmt.Sprintf("misspelt.k%d", i)))
		d.enqueueLarge(kinds[i], 40)
	}
	published := func() bool {
		s, err := outbox.ReadStatus(t.Context(), d.db, nil, outbox.StreamConfig{})
		return err == nil && s.Waiting == 0
	}
	d.await("the relay to publish or withhold the backlogs", published)
	if got := withheldKinds(t, d); len(got) == 0 {
		t.Fatal("no kind is withheld")
	}
	for _, kind := range kinds {
		d.cancelLarge(kind, 40)
	}
	d.await("the relay to publish that the tasks are cancelled", published)
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	d.start("relay", smallRelay)
	d.start("projector", newProjector)
	d.await("the cancelled kinds not to be withheld any more", func() bool { return len(withheldKinds(t, d)) == 0 })
}

// hasRoom reports whether the relay has nothing to remove from the stream: it is not nearly full.
func hasRoom(t *testing.T, d *depot, js jetstream.JetStream) bool {
	t.Helper()
	s, err := outbox.ReadStatus(t.Context(), d.db, js, outbox.StreamConfig{})
	return err == nil && s.Stream != nil && !s.Stream.NearlyFull
}

// cancelLarge cancels the tasks of enqueueLarge.
func (d *depot) cancelLarge(kind ledger.Kind, n int) {
	d.t.Helper()
	op, err := operator.New(operator.Config{DB: d.db})
	if err != nil {
		d.t.Fatal(err)
	}
	for i := range n {
		key := ledger.Key{Kind: kind, BizID: ledger.BizID(fmt.Sprint(i))}
		if _, err := op.Cancel(d.t.Context(), key, operator.Audit{Actor: "test", Reason: "test"}); err != nil {
			d.t.Fatal(err)
		}
	}
}

// Tasks of kinds without workers wait and fill the share of such kinds, and all tasks of other ones are cancelled. The
// cancelled kinds are not withheld any more, although no room follows.
func TestFinishedKindsBesideWaitingOnes(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	d.start("relay", smallRelay)
	d.start("projector", newProjector)
	var waiting, kinds []ledger.Kind
	for i := range 4 {
		waiting = append(waiting, ledger.Kind(fmt.Sprintf("waiting.k%d", i)))
		d.enqueueLarge(waiting[i], 40)
	}
	for i := range 6 {
		kinds = append(kinds, ledger.Kind(fmt.Sprintf("misspelt.k%d", i)))
		d.enqueueLarge(kinds[i], 40)
	}
	d.await("the backlogs to be withheld", func() bool { return len(withheldKinds(t, d)) == len(waiting)+len(kinds) })
	for _, kind := range kinds {
		d.cancelLarge(kind, 40)
	}
	d.await("the waiting kinds alone to be withheld", func() bool { return len(withheldKinds(t, d)) == len(waiting) })

	late := ledger.MustKind[struct{}](waiting[2])
	again := ledger.MustKind[struct{}](kinds[2])
	d.start("waiting workers", handles(late, func(*workers.Job) {}))
	d.start("workers", handles(again, func(*workers.Job) {}))
	d.enqueue(again, "again")
	d.await("the waiting tasks and the new one to run", func() bool {
		return d.count(`select count(*) from effect`) == 41
	})
}

// enqueueLarge enqueues n tasks of a kind with args of a thousand bytes.
func (d *depot) enqueueLarge(kind ledger.Kind, n int) {
	d.t.Helper()
	args, err := json.Marshal(map[string]string{"x": strings.Repeat("x", 1000)})
	if err != nil {
		d.t.Fatal(err)
	}
	var entries []ledger.Entry
	for i := range n {
		key := ledger.Key{Kind: kind, BizID: ledger.BizID(fmt.Sprint(i))}
		entries = append(entries, ledger.Entry{Key: key, Args: args})
	}
	if _, err := ledger.EnqueueMany(d.t.Context(), d.db, entries); err != nil {
		d.t.Fatal(err)
	}
}

// withheldKinds returns the kinds that status reports as withheld.
func withheldKinds(t *testing.T, d *depot) []ledger.Kind {
	t.Helper()
	s, err := outbox.ReadStatus(t.Context(), d.db, nil, outbox.StreamConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return s.Withheld
}

// workMessages returns the number of messages on the stream that wake workers, by kind.
func workMessages(t *testing.T, js jetstream.JetStream) map[ledger.Kind]int {
	t.Helper()
	s, err := js.Stream(t.Context(), stream.Name)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(stream.AllSubjects))
	if err != nil {
		t.Fatal(err)
	}
	n := make(map[ledger.Kind]int)
	for subject, messages := range info.State.Subjects {
		_, typ, kind, err := stream.ParseSubject(subject)
		if err != nil {
			t.Fatal(err)
		}
		if typ.WakesWorkers() {
			n[kind] += int(messages)
		}
	}
	return n
}
