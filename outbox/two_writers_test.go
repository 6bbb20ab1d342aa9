package outbox_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/fault"
)

// A message of another relay takes the sequence of a page's first message. The stream refuses that one, and the second
// message fits by its number. If it were of the same task, its events would be out of order. Not parallel: the crash
// point is of the whole process.
func TestTwoWritersKeepTheOrder(t *testing.T) {
	b := newBundle(t)
	b.relay()
	b.enqueue("coupon.send", "first-", 1)
	b.awaitPublished()
	var once sync.Once
	remove := fault.Set(fault.RelayPage, func() {
		once.Do(func() {
			sent, err := b.stream().GetMsg(b.ctx(), 1)
			if err != nil {
				t.Error(err)
				return
			}
			again := &nats.Msg{Subject: sent.Subject, Header: sent.Header, Data: sent.Data}
			again.Header.Del(nats.ExpectedLastSeqHdr)
			if _, err := b.js.PublishMsg(b.ctx(), again); err != nil {
				t.Error(err)
			}
		})
	})
	defer remove()
	b.enqueueAndStart("order-", 1) // two events of one task in a page
	b.awaitPublished()
	var got []string
	for _, d := range b.check() {
		got = append(got, fmt.Sprintf("%s/%d", d.BizID, d.Version))
	}
	if want := "[first-0/1 first-0/1 order-0/1 order-0/2]"; fmt.Sprint(got) != want {
		t.Errorf("on the stream: %v, want %s", got, want)
	}
}
