package webhook_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/webhook"
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
	h.start(webhook.Receiver{Name: "shop", URL: server.URL, Allow: loopback(), Order: webhook.OrderTask,
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
			if diff := cmp.Diff(want, f.accepted); diff != "" {
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
		err := outbox.SeekSubscriber(t.Context(), h.As("operator"), "webhook-shop", feed.After(0), "", "")
		if err != nil {
			t.Fatal(err)
		}
		ledgertest.Enqueue(t, h.As(ledgertest.App), ledger.Key{Kind: "other.kind", BizID: "1"}, `{}`) // wakes it
	}
}
