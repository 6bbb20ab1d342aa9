package outbox_test

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// state returns the state of the subscriber's stream.
func (c *client) state() jetstream.StreamState {
	of, err := c.js.Stream(c.ctx(), stream.None.ServedStream("mails"))
	if err != nil {
		return jetstream.StreamState{}
	}
	return of.CachedInfo().State
}

// A message of another process takes the sequence of a page's first message, which the stream then refuses. The second
// one would fit by its number. Events of a task arrive in order all the same (client.note). Not parallel: the crash
// point is of the whole process.
func TestTwoServersKeepTheOrder(t *testing.T) {
	c := clientOf(subscribersOf(t))
	c.enqueue("coupon.send", "first-", 1)
	c.serve(50)
	c.await("a message is published", func() bool { return c.state().Msgs == 1 })
	of, err := c.js.Stream(c.ctx(), stream.None.ServedStream("mails"))
	if err != nil {
		t.Fatal(err)
	}
	sent, err := of.GetMsg(c.ctx(), 1)
	if err != nil {
		t.Fatal(err)
	}
	remove := fault.Set(fault.SubscriberWave, sync.OnceFunc(func() {
		again := &nats.Msg{Subject: sent.Subject, Header: sent.Header, Data: sent.Data}
		again.Header.Del(nats.ExpectedLastSeqHdr)
		if _, err := c.js.PublishMsg(c.ctx(), again); err != nil {
			t.Error(err)
		}
	}))
	defer remove()
	c.enqueueAndStart("order-", 1) // two events of one task in a page
	c.receive(3)
}

// A process is stopped before it takes the stream, and goes on beside its successor, whose page is on the stream. It
// removes none of these messages: the successor would pass events that the client has not acknowledged.
func TestStoppedServerRemovesNothing(t *testing.T) {
	c := newClient(t)
	c.enqueue("coupon.send", "order-", 10)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), servedTest+"=1", relayNATS+"="+c.server.URL(), relayFreeze+"="+fault.SubscriberTake,
		relayDatabase+"="+ledgertest.URLAs(t, c.pool.Config().ConnString(), "subscriber"))
	output, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := make(chan string, 1000)
	go func() {
		for s := bufio.NewScanner(output); s.Scan(); {
			lines <- s.Text()
		}
	}()
	if _, err := syscall.Wait4(cmd.Process.Pid, nil, syscall.WUNTRACED, nil); err != nil { // until it is stopped
		t.Fatal(err)
	}
	c.serve(50)
	c.await("its successor has published the page", func() bool { return c.state().Msgs == 10 })
	before := c.state()
	for len(lines) > 0 {
		<-lines
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.await("the process begins again", func() bool { return strings.HasPrefix(<-lines, "-- Lists subscribers") })
	if now := c.state(); now.FirstSeq != before.FirstSeq {
		t.Errorf("messages before %d are removed, first was %d", now.FirstSeq, before.FirstSeq)
	}
	if all, err := feed.Subscribers(t.Context(), c.db, "mails"); err != nil || all[0].Lag != 10 {
		t.Errorf("before an acknowledgement: %+v, %v", all, err)
	}
	c.receive(10)
}
