package outbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// Tasks of a kind without workers are cancelled one after the other, so that their withheld messages are published for
// subscribers as long as the stream has room for them. No projector counts that no worker needs these. Then a page
// follows whose messages take a little less than a quarter of the stream, and more than is free.
func TestPageBesideOvertakenMessages(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(smallStream)
	const tasks, late = 50, 300
	b.enqueueSized("mail.send", "order-", tasks, tasks, 5000)
	b.enqueue("late.send", "order-", late)
	b.awaitPublished()
	for i := range tasks {
		key := ledger.Key{Kind: "mail.send", BizID: ledger.BizID(fmt.Sprintf("order-%d", i))}
		b.append(key, 1, ledger.EventCancelled)
		b.awaitPublished()
	}
	m, err := b.stream().GetMsg(b.ctx(), 1, jetstream.WithGetMsgSubject(stream.Pattern("*", "cancelled", ">")))
	if err != nil {
		t.Fatal(err)
	}
	size := stream.Size(&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data})
	n := b.stream().CachedInfo().Config.MaxBytes / 100 * 24 / size
	if n > late {
		t.Fatalf("%d messages take a quarter of the stream, want at most %d", n, late)
	}
	b.appendEach("late.send", "order-", int(n), ledger.EventCancelled)
	b.awaitPublished()
}

// A page with the messages that it overtakes takes more than the stream can hold, and the relay takes longer to come to
// it than the least time between two purges. Not parallel: the fault is of the whole process.
func TestSlowRelayDoesNotOnlyMakeRoom(t *testing.T) {
	b := newBundle(t)
	b.relay(smallStream, func(c *outbox.Config) { c.CheckEvery = time.Minute })
	const tasks = 300
	b.enqueueSized("mail.send", "order-", tasks, tasks, 1000)
	b.awaitPublished()
	t.Cleanup(fault.Set(outbox.FaultPage, func() { time.Sleep(outbox.PurgeEvery + 100*time.Millisecond) }))
	b.appendEach("mail.send", "order-", tasks, ledger.EventCancelled)
	b.awaitPublished()
}
