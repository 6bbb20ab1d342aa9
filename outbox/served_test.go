package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/served"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// servedTest: the test binary serves the subscriber mails if it is set.
const servedTest = "OUTBOX_TEST_SERVED"

func servedProcess() error {
	config, err := pgxpool.ParseConfig(os.Getenv(relayDatabase))
	if err != nil {
		return err
	}
	config.ConnConfig.Tracer = tracer{}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return err
	}
	nc, err := outbox.Connect(os.Getenv(relayNATS))
	if err != nil {
		return err
	}
	if point := os.Getenv(relayFreeze); point != "" {
		fault.Set(point, sync.OnceFunc(freeze))
	}
	return served.Run(context.Background(), served.Config{DB: pool, NATS: nc, Name: "mails", PageSize: 20,
		Archive: directories})
}

// tracer prints the first line of each statement.
type tracer struct{}

func (tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	line, _, _ := strings.Cut(data.SQL, "\n")
	fmt.Println(line)
	return ctx
}

func (tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// client is a program with a NATS client alone.
type client struct {
	*readers
	seen     map[string]int // messages by the position of their event
	versions map[string]int // the greatest version of each task that was received
	bodies   map[string]string

	archive feed.Archive // of serve
	log     io.Writer    // of serve
}

func newClient(t *testing.T) *client {
	t.Helper()
	return clientOf(newSubscribers(t))
}

func clientOf(s *readers) *client {
	s.t.Helper()
	s.bundle = newBundleOn(s.t, s.pool, natsserver.Config{})
	return &client{readers: s, seen: map[string]int{}, versions: map[string]int{}, bodies: map[string]string{},
		log: s.t.Output()}
}

func (c *client) serve(pageSize int) (stop func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- served.Run(ctx, served.Config{DB: c.db, NATS: c.nc, Name: "mails", PageSize: pageSize,
			Archive: c.archive, Logger: slog.New(slog.NewTextHandler(c.log, nil))})
	}()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("the server ended with %v", err)
		}
	}
	c.t.Cleanup(stop)
	return stop
}

// receive receives and acknowledges messages until n different events have come. A version of a task must not come
// before the one below it has come.
func (c *client) receive(n int) {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	for len(c.seen) < n {
		if time.Now().After(deadline) {
			c.t.Fatalf("received %d events, want %d", len(c.seen), n)
		}
		c.receiveSome()
	}
}

func (c *client) note(m jetstream.Msg) {
	c.t.Helper()
	task := m.Headers().Get("ce-subject")
	place, err := url.ParseQuery(m.Headers().Get("ce-task"))
	version, err2 := strconv.Atoi(place.Get("version"))
	if err = errors.Join(err, err2); err != nil || !strings.HasPrefix(m.Subject(), "subscriber.mails.") {
		c.t.Errorf("message on %s: %v", m.Subject(), err)
	}
	if version > c.versions[task]+1 {
		c.t.Errorf("version %d of %s came after version %d", version, task, c.versions[task])
	}
	c.versions[task] = max(c.versions[task], version)
	c.seen[place.Get("position")]++
	c.bodies[place.Get("position")] = string(m.Data())
}

func positionOf(m jetstream.Msg) string {
	place, _ := url.ParseQuery(m.Headers().Get("ce-task"))
	return place.Get("position")
}

// serveAndKill serves in a process that is killed after so many acknowledged pages, before it passes the last one.
func (c *client) serveAndKill(pages int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), servedTest+"=1", relayNATS+"="+c.server.URL(),
		relayDatabase+"="+ledgertest.URLAs(c.t, c.pool.Config().ConnString(), "subscriber"),
		fmt.Sprintf("%s=%s:%d", fault.Variable, fault.SubscriberHandled, pages))
	done := make(chan []byte, 1)
	go func() {
		output, _ := cmd.CombinedOutput()
		done <- output
	}()
	before := len(c.seen)
	c.receive(before + 10) // the process is killed when its page is acknowledged
	var output []byte
	for isRunning := true; isRunning; {
		select {
		case output = <-done:
			isRunning = false
		default:
			c.receiveSome()
		}
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGKILL {
		c.t.Fatalf("the process ended with %s: %s", cmd.ProcessState, output)
	}
}

// A served subscriber whose process is killed between the publication of a page and its passing, beside processes of
// the same name, and whose stream is lost, delivers every event, those of a task in order. It has passed an event only
// when the client has acknowledged it.
func TestServedSubscriber(t *testing.T) {
	c := newClient(t)
	c.enqueue("coupon.send", "before-", 60)
	for n := range 2 {
		c.serveAndKill(n + 1)
	}
	stop := c.serve(7)
	other := c.serve(7)
	for i := range 10 {
		key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("task-%d", i))}
		if _, err := ledger.Enqueue(t.Context(), c.pool, key, nil, nil); err != nil {
			t.Fatal(err)
		}
		c.append(key, 1, ledger.EventStarted)
		c.append(key, 2, ledger.EventSucceeded)
	}
	c.receive(90)
	c.await("what came twice is acknowledged", func() bool {
		c.receiveSome()
		all, err := feed.Subscribers(t.Context(), c.db, "mails")
		of, streamErr := c.js.Stream(c.ctx(), stream.None.ServedStream("mails"))
		return err == nil && streamErr == nil && all[0].Lag == 0 && of.CachedInfo().State.Msgs == 0
	})
	stop()
	other()

	// Published and not acknowledged is not passed: the loss of the stream loses nothing.
	c.serve(50)
	c.enqueue("coupon.send", "late-", 10)
	c.await("a page is published", func() bool {
		of, err := c.js.Stream(c.ctx(), stream.None.ServedStream("mails"))
		return err == nil && of.CachedInfo().State.Msgs == 10
	})
	if all, err := feed.Subscribers(t.Context(), c.db, "mails"); err != nil || all[0].Lag != 10 {
		t.Errorf("before an acknowledgement: %+v, %v", all, err)
	}
	if err := c.js.DeleteStream(c.ctx(), stream.None.ServedStream("mails")); err != nil {
		t.Fatal(err)
	}
	c.receive(100)
	c.await("it has passed all", func() bool {
		all, err := feed.Subscribers(t.Context(), c.db, "mails")
		return err == nil && all[0].Lag == 0
	})
	doubles := 0
	for _, n := range c.seen {
		doubles += n - 1
	}
	if doubles > 60 { // three pages
		t.Errorf("%d events came again after two kills and a loss of the stream", doubles)
	}
	t.Logf("events that came again: %d", doubles)
}

// receiveSome receives and acknowledges what comes within a moment.
func (c *client) receiveSome() {
	consumer, err := c.js.Consumer(c.ctx(), stream.None.ServedStream("mails"), "mails")
	if err != nil {
		time.Sleep(10 * time.Millisecond)
		return
	}
	if batch, err := consumer.Fetch(50, jetstream.FetchMaxWait(50*time.Millisecond)); err == nil {
		for m := range batch.Messages() {
			c.note(m)
			_ = m.Ack()
		}
	}
}

// A client that stays away for long gets its page once, and not again each time that its server looks whether it was
// moved. When it is moved back, it gets what it had acknowledged again.
func TestServedSubscriberWaits(t *testing.T) {
	c := newClient(t)
	c.enqueue("coupon.send", "a-", 5)
	c.serve(50)
	state := func() jetstream.StreamState {
		of, err := c.js.Stream(c.ctx(), stream.None.ServedStream("mails"))
		if err != nil {
			return jetstream.StreamState{}
		}
		return of.CachedInfo().State
	}
	c.await("a page is published", func() bool { return state().Msgs == 5 })
	consumer, err := c.js.Consumer(c.ctx(), stream.None.ServedStream("mails"), "mails")
	if err != nil {
		t.Fatal(err)
	}
	first, err := consumer.Next()
	if err != nil {
		t.Fatal(err)
	}
	c.note(first)
	if err := first.DoubleAck(c.ctx()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(outbox.ServedPatience + time.Second) // the feed is opened again
	if got := state(); got.LastSeq != 5 {
		t.Errorf("the page was published again: %+v", got)
	}
	operator := ledgertest.As(t, c.pool, "operator")
	if err := subscribers.Seek(t.Context(), operator, "mails", feed.Start{}, "", ""); err != nil {
		t.Fatal(err)
	}
	clear(c.versions)
	c.receive(5)
	position := positionOf(first)
	c.await("the acknowledged one comes again", func() bool {
		c.receiveSome()
		return c.seen[position] > 1
	})
}

// A program that starts before the first event finds its stream and its consumer.
func TestServedStreamIsMadeAtTheStart(t *testing.T) {
	c := newClient(t)
	c.serve(50)
	c.await("the consumer exists", func() bool {
		_, err := c.js.Consumer(c.ctx(), stream.None.ServedStream("mails"), "mails")
		return err == nil
	})
	c.enqueue("coupon.send", "a-", 1)
	c.receive(1)
}

// A client that can never handle one event gets the ones after it when the subscriber is moved past that one: the old
// page does not stay on the stream.
func TestServedSubscriberIsMovedPastAnEvent(t *testing.T) {
	c := newClient(t)
	c.enqueue("coupon.send", "a-", 5)
	c.serve(50)
	var unhandled string
	seen := map[string]bool{}
	receive := func() {
		consumer, err := c.js.Consumer(c.ctx(), stream.None.ServedStream("mails"), "mails")
		if err != nil {
			return
		}
		batch, err := consumer.Fetch(50, jetstream.FetchMaxWait(50*time.Millisecond))
		if err != nil {
			return
		}
		for m := range batch.Messages() {
			position := positionOf(m)
			if unhandled == "" {
				unhandled = position
			}
			if seen[position] = true; position != unhandled {
				_ = m.Ack()
			}
		}
	}
	c.await("the others are received", func() bool {
		receive()
		return len(seen) == 5
	})
	position, err := strconv.ParseInt(unhandled, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	operator := ledgertest.As(t, c.pool, "operator")
	to := feed.After(ledger.Position(position))
	if err := subscribers.Seek(t.Context(), operator, "mails", to, "", "it cannot be handled"); err != nil {
		t.Fatal(err)
	}
	c.enqueue("coupon.send", "b-", 5)
	c.await("the later ones are received and passed", func() bool {
		receive()
		all, err := feed.Subscribers(t.Context(), c.db, "mails")
		of, streamErr := c.js.Stream(c.ctx(), stream.None.ServedStream("mails"))
		return len(seen) == 10 && err == nil && all[0].Lag == 0 && streamErr == nil && of.CachedInfo().State.Msgs == 0
	})
}
