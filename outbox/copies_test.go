package outbox_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/outbox"
)

// A relay has the lease after a promotion or a restart of the server, but its session has not read the new run yet. It
// does not answer the claim of another relay there, which would refuse as if the database were a copy.
func TestClaimOfAnEarlierRunAnswersNothing(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay(smallPages, func(c *outbox.Config) { c.LeaseTTL = time.Minute })
	b.enqueue("coupon.send", "order-", 10)
	b.awaitPublished()
	claims := servicetest.Try(b.nc.SubscribeSync(stream.Copies))(t)
	var installation string
	if err := b.pool.QueryRow(b.ctx(), "select taskledger_internal.installation()").Scan(&installation); err != nil {
		t.Fatal(err)
	}
	ask := func(word string) {
		t.Helper()
		text := servicetest.Try(json.Marshal(map[string]any{
			"installation": installation, "run": "a new run", "holder": "other/relay", "word": word,
		}))(t)
		if err := b.nc.Publish(stream.Copies, text); err != nil {
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
