package outbox_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/outbox"
)

// A claim of a relay that worked before the server's last start arrives late, several times. The relay asks, gets no
// answer, and continues.
func TestLateClaimIsNotACopy(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay(smallPages, func(c *outbox.Config) { c.LeaseTTL = time.Second })
	b.enqueue("coupon.send", "order-", 10)
	b.awaitPublished()
	asked := servicetest.Try(b.nc.SubscribeSync(stream.Relays))(t)
	var own map[string]any
	claim := func() {
		t.Helper()
		m := servicetest.Try(asked.NextMsgWithContext(b.ctx()))(t)
		if err := json.Unmarshal(m.Data, &own); err != nil {
			t.Fatal(err)
		}
	}
	claim()
	late := map[string]any{
		"installation": own["installation"], "run": "the run before", "since": 1, "holder": "earlier/relay",
		"word": "w",
	}
	text := servicetest.Try(json.Marshal(late))(t)
	for range 3 {
		if err := b.nc.Publish(stream.Relays, text); err != nil {
			t.Fatal(err)
		}
		for claim(); own["holder"] == "earlier/relay" || own["answers"] != "w"; claim() { // until the relay has asked
		}
	}
	b.enqueue("coupon.send", "later-", 10)
	b.awaitPublished()
	if s := b.status().Relay; !s.Alive || s.Refused || s.Note != "" || s.Copy != "" {
		t.Errorf("the relay after a late claim: %+v", s)
	}
	b.check()
}

// A relay has the lease after a promotion or a restart of the server, but its session has not read the new run yet. It
// does not answer the claim of another relay there, which would refuse as if the database were a copy.
func TestClaimOfAnEarlierRunAnswersNothing(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	// It claims only as an answer.
	r := b.relay(smallPages, func(c *outbox.Config) { c.LeaseTTL = time.Minute })
	b.enqueue("coupon.send", "order-", 10)
	b.awaitPublished()
	claims := servicetest.Try(b.nc.SubscribeSync(stream.Relays))(t)
	var installation string
	if err := b.pool.QueryRow(b.ctx(), "select taskledger.installation()").Scan(&installation); err != nil {
		t.Fatal(err)
	}
	ask := func(word string) {
		t.Helper()
		text := servicetest.Try(json.Marshal(map[string]any{
			"installation": installation, "run": "a new run", "since": int64(1) << 60, "holder": "other/relay",
			"word": word,
		}))(t)
		if err := b.nc.Publish(stream.Relays, text); err != nil {
			t.Fatal(err)
		}
	}
	restore := r.relay.SetRun("the run before")
	ask("early")
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // an answer would take some milliseconds
	restore()
	for {
		ask("late")
		m, err := claims.NextMsg(100 * time.Millisecond)
		for ; err == nil; m, err = claims.NextMsg(100 * time.Millisecond) {
			var got struct{ Holder, Answers string }
			if err := json.Unmarshal(m.Data, &got); err != nil {
				t.Fatal(err)
			}
			switch {
			case got.Holder == "other/relay":
			case got.Answers == "early":
				t.Fatal("the relay claims a run that has ended")
			case got.Answers == "late":
				return
			}
		}
	}
}
