package inflight_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/inflight"
)

// An acknowledgement waits for others for a moment, Wait sends those that are waiting, and other answers are sent at
// once.
func TestAcknowledgementsAreSentTogether(t *testing.T) {
	t.Parallel()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	answers, err := nc.SubscribeSync("answer.*")
	if err != nil {
		t.Fatal(err)
	}
	set := inflight.New[int](inflight.Config{NATS: nc, Slots: 10})
	n := 0
	answer := func(text []byte) {
		n++
		key := ledger.Key{Kind: "order", BizID: ledger.BizID(fmt.Sprint(n))}
		task, _ := set.Add(inflight.Arrival{
			Message:  stream.Message{Key: key, Version: 1},
			Delivery: inflight.Delivery{Reply: "answer." + fmt.Sprint(n)},
		})
		set.Answer(task, text)
	}
	sent := func() uint64 { return nc.Stats().OutMsgs }
	receive := func(want string) {
		t.Helper()
		m, err := answers.NextMsg(time.Minute)
		if err != nil || string(m.Data) != want {
			t.Fatalf("%v, %v, want %s", m, err, want)
		}
	}

	answer(stream.AckAnswer)
	receive("+ACK") // after the delay

	set.SetAckDelay(time.Hour)
	before := sent()
	answer(stream.AckAnswer)
	answer(stream.AckAnswer)
	if got := sent() - before; got != 0 {
		t.Errorf("%d acknowledgements were sent alone", got)
	}
	answer(stream.NakAnswer)
	receive("-NAK")
	set.Wait()
	if got := sent() - before; got != 3 {
		t.Errorf("%d answers were sent, want 3", got)
	}
	receive("+ACK")
	receive("+ACK")
}
