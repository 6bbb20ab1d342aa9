package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// serveBehind serves the API behind another handler, and returns a client of it.
func serveBehind(
	t *testing.T, db *pgxpool.Pool, before func(w http.ResponseWriter, r *http.Request, api http.Handler),
) *client.Client {
	t.Helper()
	_, secret, err := api.CreateToken(t.Context(), db, api.TokenOptions{Name: "shop", Role: api.Viewer})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := api.New(api.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before(w, r, handler)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(handler.Drain)
	c, err := client.New(client.Config{URL: server.URL, Token: secret})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func enqueue(t *testing.T, db *pgxpool.Pool, kind ledger.Kind, ids ...int) {
	t.Helper()
	for _, id := range ids {
		ledgertest.Enqueue(t, db, ledger.Key{Kind: kind, BizID: ledger.BizID(fmt.Sprint(id))}, `{}`)
	}
}

// cutter ends a connection after some bytes, wherever that is in an event.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	if len(p) > c.left {
		_, _ = c.ResponseWriter.Write(p[:c.left])
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}

func (c *cutter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// A stream whose connections are cut off within events, refused and answered by a proxy has every event of its kinds
// and types, those of a task in their order.
func TestEventsAreResumed(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "api", "reader", "producer", "operator")
	var connections atomic.Int32
	var resumed atomic.Int64
	c := serveBehind(t, db, func(w http.ResponseWriter, r *http.Request, api http.Handler) {
		n := int(connections.Add(1))
		position, _, _ := strings.Cut(r.Header.Get("Last-Event-ID"), "-")
		after, err := strconv.ParseInt(position, 10, 64)
		if before := resumed.Swap(after); err != nil || after < before {
			t.Errorf("the stream is resumed after %d, before after %d: %v", after, before, err)
		}
		switch n % 4 {
		case 0:
			w.WriteHeader(http.StatusBadGateway)
		case 1:
			panic(http.ErrAbortHandler)
		default:
			api.ServeHTTP(&cutter{w, 1000 + 317*n}, r)
		}
	})
	const events = 40
	for i := range events {
		enqueue(t, db, "coupon.send", i)
		enqueue(t, db, "mail.send", i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o := &client.EventOptions{StartAfter: new(ledger.Position(0)), Kinds: []string{"coupon.*"},
		Types: []ledger.EventType{ledger.EventEnqueued}}
	var order []string
	seen := map[string]bool{}
	for e, err := range c.Events(ctx, o) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind != "coupon.send" || e.Type != ledger.EventEnqueued || e.Position == 0 {
			t.Fatalf("got %+v", e)
		}
		if !seen[string(e.BizID)] {
			order = append(order, string(e.BizID))
		}
		seen[string(e.BizID)] = true
		if len(order) == events {
			break
		}
	}
	for i, id := range order {
		if id != fmt.Sprint(i) {
			t.Errorf("event %d is of %s", i, id)
		}
	}
	if connections.Load() < 4 || resumed.Load() == 0 {
		t.Errorf("%d connections, the last one after %d", connections.Load(), resumed.Load())
	}
}

// A stream from now on that is cut off before its first event misses none of those that are committed meanwhile.
func TestEventsFromNowAreResumed(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "api", "reader", "producer", "operator")
	enqueue(t, db, "coupon.send", 1)
	var connections atomic.Int32
	c := serveBehind(t, db, func(w http.ResponseWriter, r *http.Request, api http.Handler) {
		if connections.Add(1) > 1 {
			api.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		time.AfterFunc(100*time.Millisecond, cancel) // the stream is open: it has an id, and no event
		api.ServeHTTP(w, r.WithContext(ctx))
		enqueue(t, db, "coupon.send", 2)
		panic(http.ErrAbortHandler)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for e, err := range c.Events(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if e.BizID == "2" {
			break
		}
	}
}

// A stream ends with its context, with a problem that another attempt cannot change, and with the loop of the caller. A
// server that sends nothing is given up.
func TestEventsEnd(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "api", "reader", "producer", "operator")
	var connections atomic.Int32
	c := serveBehind(t, db, func(w http.ResponseWriter, r *http.Request, api http.Handler) {
		if connections.Add(1) == 1 {
			<-r.Context().Done() // until the client gives up
			return
		}
		api.ServeHTTP(w, r)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	enqueue(t, db, "coupon.send", 1)
	var last error
	o := &client.EventOptions{StartAfter: new(ledger.Position(0)), Silence: 2 * time.Second}
	for e, err := range c.Events(ctx, o) {
		if last = err; err == nil && e.BizID == "1" {
			cancel()
		}
	}
	if !errors.Is(last, context.Canceled) || connections.Load() != 2 {
		t.Errorf("ended with %v after %d connections", last, connections.Load())
	}
	var p *client.Problem
	for _, err := range c.Events(t.Context(), &client.EventOptions{StartAfter: new(ledger.Position(1 << 40))}) {
		last = err
	}
	if !errors.As(last, &p) || p.Code != "invalid" || !strings.Contains(p.Cure, "position") {
		t.Errorf("an unknown position: %v", last)
	}
	for _, err := range c.Events(t.Context(), &client.EventOptions{Types: []ledger.EventType{"exploded"}}) {
		last = err
	}
	if !errors.As(last, &p) || p.Field != "type" {
		t.Errorf("an unknown type: %v", last)
	}
}
