package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

const patience = 20 * time.Second

func start(t testing.TB, config natsserver.Config) (*natsserver.Server, *nats.Conn, jetstream.JetStream) {
	t.Helper()
	config.Dir = t.TempDir()
	server, err := natsserver.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	nc, err := stream.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return server, nc, js
}

func publisher(t testing.TB, nc *nats.Conn) *stream.Publisher {
	t.Helper()
	p, err := stream.NewPublisher(nc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func ensure(t testing.TB, js jetstream.JetStream, c stream.Config) jetstream.Stream {
	t.Helper()
	s, err := stream.Ensure(t.Context(), js, c, "i-1")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// page returns n messages, versions first to first+n-1 of one task.
func page(t testing.TB, first, n int) []*nats.Msg {
	t.Helper()
	msgs := make([]*nats.Msg, n)
	for i := range n {
		e := sampleEvent()
		e.Version = ledger.Version(first + i)
		msgs[i] = stream.Encode(e, []byte(`{"amount":5}`), stream.Source("i-1"))
		msgs[i].Header.Set(nats.MsgIdHdr, e.ID()) // so that a test can publish it again
	}
	return msgs
}

// publishing is a method of a publisher.
type publishing func(*stream.Publisher, context.Context, []*nats.Msg, time.Duration) []stream.Result

// publishInOrder publishes messages with ids, once more with subjects of their own if the stream has refused some.
func publishInOrder(
	p *stream.Publisher, ctx context.Context, msgs []*nats.Msg, timeout time.Duration,
) []stream.Result {
	if results, ok := p.PublishInOrder(ctx, msgs, timeout); ok {
		return results
	}
	return p.Publish(ctx, msgs, timeout)
}

// eachWay runs a test with both ways to publish to a stream with one replica.
func eachWay(t *testing.T, test func(t *testing.T, publish publishing)) {
	t.Parallel()
	for name, publish := range map[string]publishing{
		"own reply subjects": (*stream.Publisher).Publish, "in order": publishInOrder,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, publish) })
	}
}

func TestPublish(t *testing.T) {
	eachWay(t, func(t *testing.T, publish publishing) {
		_, nc, js := start(t, natsserver.Config{})
		ensure(t, js, stream.Config{})
		p := publisher(t, nc)
		for i, r := range publish(p, t.Context(), page(t, 1, 1000), patience) {
			if r.Err != nil || r.Seq != uint64(i+1) {
				t.Fatalf("message %d: %+v", i, r)
			}
		}
		got := publish(p, t.Context(), page(t, 1000, 2), patience)
		if diff := difference.Of([]stream.Result{{Seq: 1000}, {Seq: 1001}}, got); diff != "" {
			t.Error(diff)
		}
		if got := publish(p, t.Context(), nil, patience); len(got) != 0 {
			t.Errorf("no messages: %v", got)
		}
	})
}

func TestPublishWithoutStream(t *testing.T) {
	eachWay(t, func(t *testing.T, publish publishing) {
		_, nc, _ := start(t, natsserver.Config{})
		for _, r := range publish(publisher(t, nc), t.Context(), page(t, 1, 10), patience) {
			if !errors.Is(r.Err, stream.ErrNoStream) {
				t.Errorf("%+v, want ErrNoStream", r)
			}
		}
	})
}

func TestPublishTooLarge(t *testing.T) {
	eachWay(t, func(t *testing.T, publish publishing) {
		_, nc, js := start(t, natsserver.Config{MaxPayload: 8 << 10})
		ensure(t, js, stream.Config{})
		msgs := page(t, 1, 3)
		msgs[1].Data = bytes.Repeat([]byte("x"), 9<<10)
		got := publish(publisher(t, nc), t.Context(), msgs, patience)
		var refused *stream.RefusedError
		if got[0].Seq != 1 || got[2].Seq != 2 || !errors.As(got[1].Err, &refused) || !refused.ForMessage() {
			t.Errorf("%+v", got)
		}
	})
}

// Size equals the size on the server: the stream keeps exactly as many of the newest messages as fit by it.
func TestSizeIsWhatTheStreamCounts(t *testing.T) {
	eachWay(t, func(t *testing.T, publish publishing) {
		_, nc, js := start(t, natsserver.Config{})
		s := ensure(t, js, stream.Config{MaxBytes: 1 << 16})
		msgs := page(t, 1, 1000)
		for i, r := range publish(publisher(t, nc), t.Context(), msgs, patience) {
			if r.Err != nil {
				t.Fatalf("message %d: %+v", i, r)
			}
		}
		fits, total := 0, int64(0)
		for _, m := range slices.Backward(msgs) {
			if total+stream.Size(m) > 1<<16 {
				break
			}
			total += stream.Size(m)
			fits++
		}
		info, err := s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if int64(info.State.Bytes) != total || int(info.State.Msgs) != fits {
			t.Errorf("the stream counts %d messages of %d bytes, Size %d of %d", info.State.Msgs, info.State.Bytes,
				fits, total)
		}
	})
}

func TestPublishDisconnected(t *testing.T) {
	eachWay(t, func(t *testing.T, publish publishing) {
		server, nc, js := start(t, natsserver.Config{})
		ensure(t, js, stream.Config{})
		p := publisher(t, nc)
		server.Stop()
		for _, r := range publish(p, t.Context(), page(t, 1, 10), patience) {
			if r.Err == nil {
				t.Errorf("%+v, want an error", r)
			}
		}
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
		// IsConnected alone can still be of the server that was stopped.
		isAnswered := func() bool { return nc.IsConnected() && nc.FlushTimeout(time.Second) == nil }
		for deadline := time.Now().Add(patience); !isAnswered() && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		// No buffered message is sent now; the publisher works again.
		if got := publish(p, t.Context(), page(t, 1, 1), patience); got[0].Err != nil || got[0].Seq != 1 {
			t.Errorf("%+v", got[0])
		}
	})
}

func TestPublishUnanswered(t *testing.T) {
	eachWay(t, func(t *testing.T, publish publishing) {
		_, nc, _ := start(t, natsserver.Config{})
		sub, err := nc.Subscribe(stream.AllSubjects, func(m *nats.Msg) {}) // receives messages and does not answer
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Unsubscribe()
		for _, r := range publish(publisher(t, nc), t.Context(), page(t, 1, 10), 50*time.Millisecond) {
			if !errors.Is(r.Err, stream.ErrNoAck) {
				t.Errorf("%+v, want ErrNoAck", r)
			}
		}
	})
}

// The acknowledgements of an abandoned page are not those of the next one.
func TestLateAcknowledgements(t *testing.T) {
	eachWay(t, func(t *testing.T, publish publishing) {
		_, nc, _ := start(t, natsserver.Config{})
		first := make(chan *nats.Msg, 1)
		var once sync.Once
		sub, err := nc.Subscribe(stream.AllSubjects, func(m *nats.Msg) {
			late := false
			once.Do(func() { late = true; first <- m })
			if !late {
				(<-first).Respond([]byte(`{"stream":"LEDGER","seq":1}`))
				m.Respond([]byte(`{"stream":"LEDGER","seq":2}`))
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Unsubscribe()
		p := publisher(t, nc)
		if got := publish(p, t.Context(), page(t, 1, 1), 50*time.Millisecond); !errors.Is(got[0].Err, stream.ErrNoAck) {
			t.Errorf("%+v, want ErrNoAck", got)
		}
		if got := publish(p, t.Context(), page(t, 2, 1), patience); got[0].Seq != 2 {
			t.Errorf("%+v, want the second answer", got)
		}
	})
}

// answerer answers the messages of a page as a stream does, in an order of the test's.
type answerer struct {
	order   []int          // of the answers of the first page; the next ones are in order
	refused map[int]bool   // messages that are refused
	stored  map[string]int // sequences by message id
	page    []*nats.Msg
}

func (a *answerer) receive(m *nats.Msg, length int) {
	if a.page = append(a.page, m); len(a.page) < length {
		return
	}
	seqs := make([]string, length)
	for i, m := range a.page {
		id := m.Header.Get(nats.MsgIdHdr)
		switch seq, isStored := a.stored[id]; {
		case a.refused[i]:
			seqs[i] = `{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"}}`
		case isStored:
			seqs[i] = fmt.Sprintf(`{"stream":"LEDGER","seq":%d,"duplicate": true}`, seq)
		default:
			a.stored[id] = len(a.stored) + 1
			seqs[i] = fmt.Sprintf(`{"stream":"LEDGER","seq":%d}`, a.stored[id])
		}
	}
	for i := range length {
		if a.order != nil {
			i = a.order[i]
		}
		a.page[i].Respond([]byte(seqs[i]))
	}
	a.page, a.order = nil, nil
}

// A refusal may arrive before the answers to earlier messages. It is not assigned to another message.
func TestRefusalOutOfOrder(t *testing.T) {
	t.Parallel()
	_, nc, _ := start(t, natsserver.Config{})
	a := &answerer{order: []int{2, 0, 1, 3}, refused: map[int]bool{2: true}, stored: map[string]int{}}
	sub, err := nc.Subscribe(stream.AllSubjects, func(m *nats.Msg) { a.receive(m, 4) })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	p := publisher(t, nc)
	if got, ok := p.PublishInOrder(t.Context(), page(t, 1, 4), patience); ok || got != nil {
		t.Errorf("results of a page with a refused message: %+v", got)
	}
}

// A stream stores the messages of a page that know its end, and refuses others. The size of what Expect adds is known.
func TestExpect(t *testing.T) {
	t.Parallel()
	_, nc, js := start(t, natsserver.Config{})
	ensure(t, js, stream.Config{})
	p := publisher(t, nc)
	for i, last := range []uint64{0, 10, 5} { // the third page does not know the second
		msgs := page(t, 1+10*i, 10)
		before := stream.Size(msgs[9])
		stream.Expect(msgs, last)
		if got, want := stream.Size(msgs[9])-before, stream.ExpectSize(last+9); got != want {
			t.Errorf("Expect adds %d bytes, want %d", got, want)
		}
		for n, r := range p.Publish(t.Context(), msgs, patience) {
			var refused *stream.RefusedError
			if isOK := r.Err == nil && r.Seq == last+uint64(n)+1; i < 2 && !isOK {
				t.Errorf("message %d of page %d: %+v", n, i, r)
			}
			if i == 2 && (!errors.As(r.Err, &refused) || !refused.WrongSequence()) {
				t.Errorf("message %d of a page that does not know the end: %+v", n, r)
			}
		}
		for _, m := range msgs {
			stream.Recycle(m)
		}
	}
	if m := page(t, 1, 1)[0]; m.Header.Get(nats.ExpectedLastSeqHdr) != "" {
		t.Error("a recycled message expects a sequence")
	}
}

// All earlier messages are on the stream when AwaitEarlier returns, and no other one.
func TestAwaitEarlier(t *testing.T) {
	t.Parallel()
	server, nc, js := start(t, natsserver.Config{})
	p := publisher(t, nc)
	if err := p.AwaitEarlier(t.Context(), patience); !errors.Is(err, stream.ErrNoStream) {
		t.Errorf("without a stream: %v", err)
	}
	s := ensure(t, js, stream.Config{})
	for n := 1; n <= 20; n++ {
		for _, m := range page(t, 1+100*n, 100) {
			if err := nc.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.AwaitEarlier(t.Context(), patience); err != nil {
			t.Fatal(err)
		}
		info, err := s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.State.LastSeq != uint64(100*n) {
			t.Fatalf("%d messages are on the stream, want %d", info.State.LastSeq, 100*n)
		}
	}
	server.Stop()
	if err := p.AwaitEarlier(t.Context(), 100*time.Millisecond); err == nil {
		t.Error("no error without a server")
	}
}

// A stream for which too many messages wait refuses another one at once, and stores those later.
func TestAwaitEarlierBehindTooMany(t *testing.T) {
	t.Parallel()
	_, nc, _ := start(t, natsserver.Config{})
	sub, err := nc.Subscribe(stream.AllSubjects, func(m *nats.Msg) {
		m.Respond([]byte(`{"stream":"LEDGER","error":{"code":429,"err_code":10167,"description":"too many requests"}}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	if err := publisher(t, nc).AwaitEarlier(t.Context(), patience); err == nil {
		t.Error("no error although earlier messages are not stored")
	}
}

// Where an answer is missing, which message it belongs to is unknown, so that no message counts as stored.
func TestMissingAnswerInOrder(t *testing.T) {
	t.Parallel()
	_, nc, _ := start(t, natsserver.Config{})
	n := 0
	sub, err := nc.Subscribe(stream.AllSubjects, func(m *nats.Msg) {
		if n++; n != 2 {
			m.Respond(fmt.Appendf(nil, `{"stream":"LEDGER","seq":%d}`, n))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	got, _ := publisher(t, nc).PublishInOrder(t.Context(), page(t, 1, 3), 50*time.Millisecond)
	for i, r := range got {
		if !errors.Is(r.Err, stream.ErrNoAck) || r.Seq != 0 {
			t.Errorf("message %d: %+v, want ErrNoAck", i, r)
		}
	}
}

// A server caches where each subject leads: a page has one reply subject, and the next page another one.
func TestPageHasOneReplySubject(t *testing.T) {
	t.Parallel()
	_, nc, js := start(t, natsserver.Config{})
	ensure(t, js, stream.Config{})
	p := publisher(t, nc)
	replies := map[string]int{}
	for i := range 2 {
		msgs := page(t, 1+1000*i, 1000)
		for _, r := range publishInOrder(p, t.Context(), msgs, patience) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		for _, m := range msgs {
			replies[m.Reply]++
		}
	}
	if len(replies) != 2 {
		t.Errorf("%d reply subjects, want 2", len(replies))
	}
}

func TestPublisherRefusesABufferingConnection(t *testing.T) {
	t.Parallel()
	server, _, _ := start(t, natsserver.Config{})
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := stream.NewPublisher(nc); !errors.Is(err, stream.ErrBuffered) {
		t.Errorf("error %v", err)
	}
}

func TestEnsure(t *testing.T) {
	t.Parallel()
	_, _, js := start(t, natsserver.Config{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := stream.Ensure(t.Context(), js, stream.Config{}, "i-1"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	info := ensure(t, js, stream.Config{}).CachedInfo()
	if got := stream.None.Drift(info, stream.Config{}, "i-1"); got != nil {
		t.Errorf("drift %v", got)
	}
	if got := stream.None.Drift(info, stream.Config{MaxAge: time.Hour, Replicas: 3}, "i-1"); len(got) != 2 {
		t.Errorf("drift %v, want max age and replicas", got)
	}
	ensure(t, js, stream.Config{MaxAge: time.Hour}) // reported, never changed
	if got := ensure(t, js, stream.Config{}).CachedInfo().Config.MaxAge; got != stream.DefaultMaxAge {
		t.Errorf("max age was changed to %s", got)
	}
	_, err := stream.Ensure(t.Context(), js, stream.Config{}, "i-2")
	var foreign *stream.ForeignError
	if !errors.As(err, &foreign) || foreign.Found != "i-1" || foreign.Want != "i-2" {
		t.Errorf("error %v, want a ForeignError", err)
	}
}

func TestEnsureRefusesAnUnsuitableStream(t *testing.T) {
	t.Parallel()
	_, _, js := start(t, natsserver.Config{})
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream.Name,
		Subjects: []string{stream.AllSubjects}, Retention: jetstream.WorkQueuePolicy,
		Discard: jetstream.DiscardNew}); err != nil {
		t.Fatal(err)
	}
	_, err := stream.Ensure(t.Context(), js, stream.Config{}, "i-1")
	var unsuitable *stream.UnsuitableError
	if !errors.As(err, &unsuitable) || len(unsuitable.Reasons) != 2 || !strings.Contains(err.Error(), "retention") {
		t.Errorf("error %v, want an UnsuitableError about retention and discard", err)
	}
}

func BenchmarkPublish(b *testing.B) {
	_, nc, js := start(b, natsserver.Config{})
	ensure(b, js, stream.Config{})
	p := publisher(b, nc)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		for _, r := range publishInOrder(p, b.Context(), page(b, 1+n, stream.MaxPage), patience) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
		n += stream.MaxPage
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "msgs/s")
}
