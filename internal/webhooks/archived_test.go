package webhooks_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/webhook"
)

// archiveFinished archives the finished tasks of a kind to a directory, whatever readers of the feed have passed.
func (h *hooks) archiveFinished(place string, kind ledger.Kind) {
	h.T.Helper()
	db := h.As("archiver")
	tasks := int64(0)
	h.Await("the tasks are archived", func() bool {
		h.Project()
		r, err := archiver.Run(h.Context(), db, archiver.Options{Kinds: []ledger.Kind{kind}, Hold: time.Nanosecond,
			Files: archiver.In(db, archive.Directory(place), place)})
		if err != nil {
			h.T.Fatal(err)
		}
		tasks += r.Tasks
		return tasks > 0 && r.Held == 0
	})
}

// signed refuses requests without the signature of secretText.
func signed(t *testing.T, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the sender has stopped
		}
		if _, err := webhook.Verify(r.Header, body, secretText); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		if bytes.Contains(body, []byte("a text that was erased")) {
			t.Errorf("an erased text was sent: %s", body)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// A receiver that begins in the archive gets each event of archived tasks once, signed and in order, and the events of
// tasks that are archived while their deliveries wait. A delivery that finds the archive away is retried. Moved back,
// the receiver gets all again, even if their first deliveries are archived.
func TestReceiverBeginsInTheArchive(t *testing.T) {
	h := newHooks(t)
	f := &forgetful{refusals: 1 << 30}
	f.reset()
	server := httptest.NewServer(signed(t, f))
	t.Cleanup(server.Close)
	shop := webhooks.Receiver{Name: "shop", Endpoint: endpoint(server.URL), Order: webhooks.OrderTask,
		Kinds: []ledger.Kind{"coupon.send"},
		Retry: &ledger.RetryPolicy{Ladder: []time.Duration{50 * time.Millisecond}, Attempts: 100_000, Jitter: -1}}
	place := t.TempDir() + "/archive"
	want := map[string][]int{}
	finish := func(from, to int, text string) {
		for i := from; i < to; i++ {
			k := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprint(i))}
			ledgertest.Enqueue(t, h.As(ledgertest.App), k, `{"text":"`+text+`"}`)
			ledgertest.Append(t, h.DB, k, ledger.EventStarted, ledger.EventSucceeded)
			want[fmt.Sprint(i)] = []int{1, 2, 3}
		}
	}
	finish(0, 3, "a text that was erased")
	h.archiveFinished(place, "coupon.send")
	finish(3, 6, "a text")
	ledgertest.ExecAsOwner(t, h.DB, `
		insert into taskledger.erasure (id, kind, biz_id, until, shard, erased_at, actor, reason)
		select gen_random_uuid(), 'coupon.send', n::text, 1000000, 0, now(), 'alice', 'a test'
		  from generate_series(0, 2) n`)
	h.archive = archive.Source{Open: func(place string) (archive.Store, error) {
		return archive.Directory(place), nil
	}}
	stop := h.start(shop)
	h.Await("each task's first event is refused", func() (ok bool) {
		f.read(func() { ok = len(f.refused) == 6 })
		return ok
	})
	h.archiveFinished(place, "coupon.send")
	if err := os.Rename(place, place+"-away"); err != nil {
		t.Fatal(err)
	}
	h.Await("deliveries fail because the archive is away", func() bool {
		return servicetest.One[bool](h, `select exists (
			select from taskledger.event e
			 where e.kind = 'taskledger.webhook.shop' and e.data::text like '%' || $1::text || '%')`, place)
	})
	if err := os.Rename(place+"-away", place); err != nil {
		t.Fatal(err)
	}
	stop()
	h.start(shop)
	f.read(func() { f.refusals = 0 })
	for _, round := range []string{"at first", "again"} {
		h.Await("all events are delivered "+round, func() bool {
			return h.deliveries("shop", ledger.StateScheduled)+h.deliveries("shop", ledger.StateRunning)+
				h.deliveries("shop", ledger.StateAvailable) == 0 && h.deliveries("shop", ledger.StateSucceeded) > 0
		})
		f.read(func() {
			if diff := difference.Of(want, f.accepted); diff != "" {
				t.Errorf("%s: %s", round, diff)
			}
		})
		if f.reset(); round == "again" {
			break
		}
		h.archiveFinished(place, webhooks.Kind("shop"))
		err := subscribers.Seek(t.Context(), h.As("operator"), "webhook-shop", feed.Start{}, "", "")
		if err != nil {
			t.Fatal(err)
		}
		ledgertest.Enqueue(t, h.As(ledgertest.App), ledger.Key{Kind: "other.kind", BizID: "1"}, `{}`) // wakes it
	}
}

// An event of an archived task waits for the previous one that has a delivery, even if the subscriber has passed that
// one in an earlier page.
func TestOrderOfArchivedEvents(t *testing.T) {
	h := newHooks(t)
	f := &forgetful{refusals: 1 << 30}
	f.reset()
	server := httptest.NewServer(signed(t, f))
	t.Cleanup(server.Close)
	h.archive = archive.Source{Open: func(place string) (archive.Store, error) {
		return archive.Directory(place), nil
	}}
	shop := webhooks.Receiver{Name: "shop", Endpoint: endpoint(server.URL), Order: webhooks.OrderTask,
		Kinds: []ledger.Kind{"coupon.send"}, Types: []ledger.EventType{ledger.EventEnqueued},
		Retry: &ledger.RetryPolicy{Ladder: []time.Duration{10 * time.Millisecond}, Attempts: 1_000_000, Jitter: -1}}
	key := ledger.Key{Kind: "coupon.send", BizID: "1"}
	ledgertest.Enqueue(t, h.As(ledgertest.App), key, `{}`)
	ledgertest.Append(t, h.DB, key, ledger.EventStarted, ledger.EventSucceeded)
	stop := h.start(shop)
	h.Await("version 1 is refused", func() (ok bool) {
		f.read(func() { ok = f.refused["1/1"] > 0 })
		return ok
	})
	stop()
	first := ledger.Position(servicetest.One[int64](h, `select min(position) from taskledger.event
		where kind = 'coupon.send'`))
	err := subscribers.Seek(t.Context(), h.As("operator"), "webhook-shop", feed.After(first), "", "")
	if err != nil {
		t.Fatal(err)
	}
	h.archiveFinished(t.TempDir(), "coupon.send")
	shop.Types = []ledger.EventType{ledger.EventEnqueued, ledger.EventSucceeded}
	h.start(shop)
	h.Await("version 3 has a delivery", func() bool {
		return servicetest.One[int](h, `select count(*)::integer from taskledger.event e
			where e.kind = 'taskledger.webhook.shop' and e.version = 1`) == 2
	})
	f.read(func() { f.refused["1/1"] = 0 })
	h.Await("version 1 is refused again", func() (ok bool) {
		f.read(func() { ok = f.refused["1/1"] > 2 })
		return ok
	})
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

// Without an archive, a delivery whose event was archived is buried, and names the file.
func TestDeliveryWithoutTheArchive(t *testing.T) {
	h := newHooks(t)
	r := newReceiver(t)
	r.refuse(1 << 30)
	key := ledger.Key{Kind: "coupon.send", BizID: "1"}
	ledgertest.Enqueue(t, h.As(ledgertest.App), key, `{}`)
	ledgertest.Append(t, h.DB, key, ledger.EventCancelled)
	h.start(webhooks.Receiver{Name: "shop", Endpoint: endpoint(r.server.URL), Kinds: []ledger.Kind{"coupon.send"},
		Types: []ledger.EventType{ledger.EventCancelled},
		Retry: &ledger.RetryPolicy{Ladder: []time.Duration{50 * time.Millisecond}, Attempts: 100_000}})
	h.Await("the delivery is refused", func() bool { return r.refused() > 0 })
	place := t.TempDir()
	h.archiveFinished(place, "coupon.send")
	h.Await("the delivery is buried", func() bool { return h.deliveries("shop", ledger.StateDead) == 1 })
	text := servicetest.One[string](h, `select e.data::text from taskledger.event e
		where e.kind = 'taskledger.webhook.shop' and e.type = 'buried'`)
	if !strings.Contains(text, "the service was given no archive: task coupon.send/1 was archived at ") ||
		!strings.Contains(text, place+"/volumes/") {
		t.Error(text)
	}
}
