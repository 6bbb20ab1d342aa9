package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/replay"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

const auditSubject = "audit.november"

// makeStream makes a stream for a replay.
func (b *bundle) makeStream(name string, subjects ...string) jetstream.Stream {
	b.t.Helper()
	s, err := b.js.CreateStream(b.ctx(), jetstream.StreamConfig{Name: name, Subjects: subjects})
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// replayed returns the positions of the events on a stream, and the number in the message of the end, -1 without one.
func (b *bundle) replayed(s jetstream.Stream) (positions []ledger.Position, end int) {
	b.t.Helper()
	info, err := s.Info(b.ctx())
	if err != nil {
		b.t.Fatal(err)
	}
	end = -1
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		m, err := s.GetMsg(b.ctx(), seq)
		if err != nil {
			b.t.Fatal(err)
		}
		if m.Header.Get(replay.Header) == "" {
			b.t.Errorf("message %d has no header %s", seq, replay.Header)
		}
		if _, err := stream.Decode(m.Subject, m.Header, m.Data); !errors.Is(err, stream.ErrMalformed) {
			b.t.Errorf("a worker would read message %d: %v", seq, err)
		}
		if text := m.Header.Get(replay.HeaderEnd); text != "" {
			if end, err = strconv.Atoi(text); err != nil || len(m.Data) > 0 {
				b.t.Errorf("message %d: %v, %q", seq, err, m.Data)
			}
			continue
		}
		p, err := strconv.ParseInt(m.Header.Get("Taskledger-Replay-Position"), 10, 64)
		if err != nil {
			b.t.Errorf("message %d: %v", seq, err)
		}
		positions = append(positions, ledger.Position(p))
	}
	return positions, end
}

// replayConfig is that of a replay of the positions 3 to 28, in this process or in a child.
func replayConfig(ctx context.Context, pool *pgxpool.Pool, js jetstream.JetStream, subject string) (
	c replay.Config, err error) {
	c = replay.Config{DB: pool, JetStream: js, Subject: subject, Rate: 100_000, Actor: "ada", Reason: "audit"}
	if c.Range.From, err = ledger.MomentBefore(ctx, pool, 3); err == nil {
		c.Range.To, err = ledger.MomentOf(ctx, pool, 28)
	}
	return c, err
}

func (b *bundle) replayConfig(subject string) replay.Config {
	b.t.Helper()
	c, err := replayConfig(b.ctx(), b.pool, b.js, subject)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

func replayProcess() error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv(relayDatabase))
	if err != nil {
		return err
	}
	nc, err := outbox.Connect(os.Getenv(relayNATS))
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	c, err := replayConfig(ctx, pool, js, os.Getenv(replaySubject))
	if err == nil {
		_, err = replay.Run(ctx, c)
	}
	return err
}

// A replay that is killed at any message and run again publishes each event once and in order. Then it publishes
// nothing more. No event of it reaches the stream of workers.
func TestReplayKilled(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.enqueue("k", "t", 20)
	for n := range 10 {
		b.append(ledger.Key{Kind: "k", BizID: ledger.BizID(fmt.Sprintf("t%d", n))}, 1, ledger.EventReleased)
	}
	s := b.makeStream("REPLAY", "audit.>")
	var want []ledger.Position
	for p := range ledger.Position(26) {
		want = append(want, p+3)
	}
	environment := replaySubject + "=" + auditSubject
	for _, kill := range []struct {
		point     string
		n, events int
	}{
		{point: fault.ReplaySend, n: 1, events: 0}, {point: fault.ReplayPublished, n: 1, events: 1},
		{point: fault.ReplayPublished, n: 9, events: 10}, {point: fault.ReplaySend, n: 5, events: 14},
		{point: fault.ReplaySend, n: 13, events: 26}, {point: fault.ReplayPublished, n: 1, events: 26},
	} {
		b.runKilled(kill.point, kill.n, environment)
		if got, _ := b.replayed(s); len(got) != kill.events {
			t.Fatalf("killed at %s:%d: %d events, want %d", kill.point, kill.n, len(got), kill.events)
		}
	}
	got, end := b.replayed(s)
	if diff := difference.Of(want, got); diff != "" || end != 26 {
		t.Errorf("events (-want +got):\n%s; the end has %d, want 26", diff, end)
	}
	done, err := replay.Run(b.ctx(), b.replayConfig(auditSubject))
	if err != nil || done.Events != 26 || done.Earlier != 26 || done.Position != 28 {
		t.Errorf("a replay that has ended: %+v, %v", done, err)
	}
	if again, _ := b.replayed(s); len(again) != len(got) {
		t.Errorf("%d events, want %d", len(again), len(got))
	}
	if _, err := b.js.Stream(b.ctx(), stream.Name); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("stream of workers: %v", err)
	}
	var records int
	const recorded = `select count(*) from taskledger.event where kind = 'taskledger.operation' and version = 1
		and actor = 'ada' and data->>'action' = 'events.replay' and data->>'reason' = 'audit'
		and data->'detail'->>'to' = 'position 28'`
	if err := b.pool.QueryRow(b.ctx(), recorded).Scan(&records); err != nil || records != 6 {
		t.Errorf("%d records, %v, want 6", records, err)
	}
}

// The messages have the bodies that workers and subscribers get. An event that no message can carry is reported.
func TestReplayedMessages(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	k := ledger.Key{Kind: "k", BizID: "1"}
	ledgertest.Enqueue(t, b.pool, k, `{"n": 1}`)
	b.append(k, 1, ledger.EventReleased)
	ledgertest.ExecAsOwner(t, b.pool, `insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
		values (1, 0, 0, 'enqueued', 'not a kind', '1')`)
	b.enqueue("other", "x", 1)
	s := b.makeStream("REPLAY", "audit.>")
	c := b.replayConfigTo(4)
	progress := int64(0)
	c.Progress = func(r replay.Result) { progress = r.Events }
	done, err := replay.Run(b.ctx(), c)
	if err != nil || done.Events != 3 || progress != 3 || len(done.Invalid) != 1 || done.Invalid[0] != 3 {
		t.Errorf("%+v, %v, progress %d", done, err, progress)
	}
	for seq := range uint64(2) {
		m, err := s.GetMsg(b.ctx(), seq+1)
		if err != nil || string(m.Data) != `{"n": 1}` || m.Subject != auditSubject ||
			!strings.HasPrefix(m.Header.Get("ce-id"), "k/1/"+strconv.Itoa(int(seq)+1)+"@") {
			t.Errorf("message %d: %s %v %s, %v", seq+1, m.Subject, m.Header, m.Data, err)
		}
	}
}

// replayConfigTo is that of a replay up to a position.
func (b *bundle) replayConfigTo(p ledger.Position) replay.Config {
	b.t.Helper()
	to, err := ledger.MomentOf(b.ctx(), b.pool, p)
	if err != nil {
		b.t.Fatal(err)
	}
	return replay.Config{DB: b.pool, JetStream: b.js, Subject: auditSubject, Range: ledger.Range{To: to}}
}

// After a purge of its stream, the same replay publishes all events again, at once and in the midst of it.
func TestReplayAfterAPurge(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.enqueue("k", "t", 3)
	s := b.makeStream("REPLAY", "audit.>")
	c := b.replayConfigTo(3)
	for range 3 {
		if done, err := replay.Run(b.ctx(), c); err != nil || done.Events != 3 || done.Earlier != 0 {
			t.Errorf("%+v, %v", done, err)
		}
		info, err := s.Info(b.ctx())
		if err != nil || info.State.Msgs != 4 {
			t.Errorf("the stream has %d messages, want 4; %v", info.State.Msgs, err)
		}
		if err := s.Purge(b.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	c.Progress = func(r replay.Result) {
		if r.Events == 2 {
			if err := s.Purge(b.ctx()); err != nil {
				t.Error(err)
			}
		}
	}
	var refused *replay.SubjectError
	if _, err := replay.Run(b.ctx(), c); !errors.As(err, &refused) {
		t.Errorf("purged in the midst: %v", err)
	}
	c.Progress = nil
	if done, err := replay.Run(b.ctx(), c); err != nil || done.Events != 3 || done.Earlier != 0 {
		t.Errorf("run again: %+v, %v", done, err)
	}
}

// A replay refuses a subject from which workers could receive, and one with messages of others.
func TestReplayRefusesSubjects(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.enqueue("k", "t", 3)
	c := b.replayConfigTo(3)
	b.makeStream(stream.Name, stream.AllSubjects, "audit.ledger")
	b.makeStream("OTHER", "audit.foreign", "audit.two")
	if _, err := b.js.Publish(b.ctx(), "audit.foreign", []byte("foreign")); err != nil {
		t.Fatal(err)
	}
	for subject, want := range map[string]string{
		"ledger.0.enqueued.k": "must not begin with ledger", "ledger": "must not begin with ledger",
		"audit.*": "wildcards", "audit.>": "wildcards", "": "single dots", "audit..x": "single dots",
		"audit x": "spaces", "$JS.API.x": "must not begin", "_INBOX.x": "must not begin",
		"audit.ledger": "belongs to the stream LEDGER", "audit.unknown": "no stream has it",
		"audit.foreign": "messages of another program",
	} {
		c.Subject = subject
		if _, err := replay.Run(b.ctx(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("subject %q: %v, want %q", subject, err, want)
		}
	}
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"must be limits":  func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy },
		"acknowledges no": func(c *jetstream.StreamConfig) { c.NoAck = true },
		"under other subjects:": func(c *jetstream.StreamConfig) {
			c.RePublish = &jetstream.RePublish{Destination: "x.>"}
		},
	} {
		config := jetstream.StreamConfig{Name: "PLACE", Subjects: []string{"place"}}
		change(&config)
		if _, err := b.js.CreateStream(b.ctx(), config); err != nil {
			t.Fatal(err)
		}
		c.Subject = "place"
		if _, err := replay.Run(b.ctx(), c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("a stream with %+v: %v, want %q", config, err, name)
		}
		if err := b.js.DeleteStream(b.ctx(), "PLACE"); err != nil {
			t.Fatal(err)
		}
	}
	c.Subject = "audit.two"
	ctx, cancel := context.WithCancel(b.ctx())
	c.Progress = func(r replay.Result) {
		if r.Events == 2 {
			cancel()
		}
	}
	if _, err := replay.Run(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	other := c
	other.Range.Kinds = []ledger.Kind{"k"}
	var refused *replay.SubjectError
	if _, err := replay.Run(b.ctx(), other); !errors.As(err, &refused) || refused.Replay == "" {
		t.Errorf("beside a replay that has not ended: %v", err)
	}
	for _, again := range []replay.Config{c, other} {
		if done, err := replay.Run(b.ctx(), again); err != nil || done.Events != 3 {
			t.Errorf("one after the other: %+v, %v", done, err)
		}
	}
	c.Range.To = ledger.Moment{}
	if _, err := replay.Run(b.ctx(), c); err == nil || !strings.Contains(err.Error(), "invalid to: must be set") {
		t.Errorf("without an end: %v", err)
	}
}
