package webhooks_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// forgetful is an HTTP server that refuses the first requests of each event of version 1, and all those of one task's.
type forgetful struct {
	refusals int
	never    string // biz_id of that task

	mu       sync.Mutex
	refused  map[string]int   // by task and version
	accepted map[string][]int // versions, by task
}

func (f *forgetful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Data struct {
			BizID   string `json:"biz_id"`
			Version int
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id, version := body.Data.BizID, body.Data.Version
	event := fmt.Sprint(id, "/", version)
	if version == 1 && (id == f.never || f.refused[event] < f.refusals) {
		f.refused[event]++
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	f.accepted[id] = append(f.accepted[id], version)
}

func (f *forgetful) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused, f.accepted = map[string]int{}, map[string][]int{}
}

func (f *forgetful) read(ask func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ask()
}

// A receiver by choice gets the events of a task in the order of their versions, across pages, retries and a replay.
// The event after one that is given up follows it.
func TestEventsOfATaskAreInOrder(t *testing.T) {
	h := newHooks(t)
	const tasks, refusals = 8, 2
	f := &forgetful{refusals: refusals, never: "3"}
	f.reset()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	h.start(webhooks.Receiver{Name: "shop", Endpoint: endpoint(server.URL), Order: webhooks.OrderTask,
		Kinds: []ledger.Kind{"coupon.send"},
		Types: []ledger.EventType{ledger.EventEnqueued, ledger.EventSnoozed, ledger.EventCancelled},
		Retry: &ledger.RetryPolicy{Ladder: []time.Duration{100 * time.Millisecond}, Attempts: refusals + 1,
			Jitter: -1}})
	want := map[string][]int{}
	for i := range tasks {
		id := fmt.Sprint(i)
		want[id] = []int{1, 3, 4} // the receiver does not want version 2
		ledgertest.Enqueue(t, h.As(ledgertest.App), ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(id)}, `{}`)
	}
	want[f.never] = []int{3, 4} // version 1 is given up
	h.Await("first events are refused", func() (ok bool) {
		f.read(func() { ok = len(f.refused) > 0 })
		return ok
	})
	for i := range tasks {
		key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprint(i))}
		for _, e := range []ledger.EventType{ledger.EventStarted, ledger.EventSnoozed, ledger.EventCancelled} {
			ledgertest.Append(t, h.DB, key, e)
		}
	}
	for _, round := range []string{"at first", "again"} {
		h.Await("all events are delivered "+round, func() (ok bool) {
			f.read(func() {
				n := 0
				for _, versions := range f.accepted {
					n += len(versions)
				}
				ok = n >= 3*tasks-1
			})
			return ok
		})
		f.read(func() {
			if diff := difference.Of(want, f.accepted); diff != "" {
				t.Errorf("%s: %s", round, diff)
			}
		})
		h.Await("the deliveries have ended", func() bool {
			return h.deliveries("shop", ledger.StateScheduled)+h.deliveries("shop", ledger.StateRunning) == 0
		})
		f.reset()
		if round == "again" {
			break
		}
		err := subscribers.Seek(t.Context(), h.As("operator"), "webhook-shop", feed.Start{}, "", "")
		if err != nil {
			t.Fatal(err)
		}
		ledgertest.Enqueue(t, h.As(ledgertest.App), ledger.Key{Kind: "other.kind", BizID: "1"}, `{}`) // wakes it
	}
}

// An event waits for the previous one that has a delivery, even if events between them have none. They were not wanted
// when they were passed, or an operator has moved the subscriber past them.
func TestOrderBeyondEventsWithoutDelivery(t *testing.T) {
	h := newHooks(t)
	f := &forgetful{refusals: 1 << 30}
	f.reset()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	shop := webhooks.Receiver{Name: "shop", Endpoint: endpoint(server.URL), Order: webhooks.OrderTask,
		Types: []ledger.EventType{ledger.EventEnqueued},
		Retry: &ledger.RetryPolicy{Ladder: []time.Duration{10 * time.Millisecond}, Attempts: 1_000_000, Jitter: -1}}
	key := ledger.Key{Kind: "coupon.send", BizID: "1"}
	ledgertest.Enqueue(t, h.As(ledgertest.App), key, `{}`)
	ledgertest.Append(t, h.DB, key, ledger.EventStarted)
	ledgertest.Enqueue(t, h.As(ledgertest.App), ledger.Key{Kind: "coupon.send", BizID: "2"}, `{}`)
	stop := h.start(shop)
	refused := func() (n int) {
		f.read(func() { n = f.refused["1/1"] })
		return n
	}
	deliveries := func() int {
		return servicetest.One[int](h, `select count(*)::integer from taskledger.event e
			where e.kind = 'taskledger.webhook.shop' and e.version = 1`)
	}
	h.Await("version 1 is refused, and version 2 passed", func() bool { return refused() > 0 && deliveries() == 2 })
	stop()
	shop.Types = nil
	ledgertest.Append(t, h.DB, key, ledger.EventCancelled)
	h.start(shop)
	h.Await("version 3 has a delivery", func() bool { return deliveries() == 3 })
	n := refused()
	h.Await("version 1 is refused again", func() bool { return refused() > n+2 })
	f.read(func() { f.refusals = 0 })
	h.Await("both are delivered", func() (ok bool) {
		f.read(func() { ok = len(f.accepted["1"]) == 2 })
		return ok
	})
	f.read(func() {
		if diff := difference.Of([]int{1, 3}, f.accepted["1"]); diff != "" {
			t.Error(diff)
		}
	})
}
