package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

type coupon struct {
	Cents int `json:"cents"`
}

var sendCoupon = ledger.MustKind[coupon]("coupon.send")

// A client whose answers are lost, refused or delayed enqueues each task once, and waits for its result.
func TestRetries(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "api", "reader", "producer", "operator")
	_, secret, err := api.CreateToken(t.Context(), db, api.TokenOptions{Name: "shop", Role: api.Operator})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := api.New(api.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch requests.Add(1) {
		case 1: // the answer is lost
			handler.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		case 2:
			w.WriteHeader(http.StatusBadGateway)
		default:
			handler.ServeHTTP(w, r)
		}
	}))
	defer server.Close()
	defer handler.Drain()
	c, err := client.New(client.Config{URL: server.URL, Token: secret, Wait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	made, err := client.Enqueue(ctx, c, sendCoupon, "a/1", coupon{500}, &client.NewTask{Tags: []string{"x"}})
	if err != nil || made.New || !made.SameArgs || requests.Load() != 3 {
		t.Fatalf("%v: %+v after %d requests", err, made, requests.Load())
	}
	var p *client.Problem
	_, err = client.Enqueue(ctx, c, sendCoupon, "a/1", coupon{1}, nil)
	if !errors.As(err, &p) || p.Code != "other_args" {
		t.Errorf("other args: %v", err)
	}
	if _, err := c.Task(ctx, sendCoupon.Key("b")); !errors.As(err, &p) || p.Code != "unknown_task" {
		t.Errorf("unknown: %v", err)
	}
	finished := make(chan error, 1)
	go func() {
		task, err := c.Wait(ctx, sendCoupon.Key("a/1"))
		if err == nil && task.State != ledger.StateCancelled {
			err = errors.New(task.String())
		}
		finished <- err
	}()
	for _, change := range []func() (ledger.Task, error){
		func() (ledger.Task, error) { return c.Bury(ctx, sendCoupon.Key("a/1"), "bad") },
		func() (ledger.Task, error) { return c.Release(ctx, sendCoupon.Key("a/1"), "") },
		func() (ledger.Task, error) {
			return c.Reschedule(ctx, sendCoupon.Key("a/1"), ledger.Due{At: time.Now().Add(time.Hour)}, "")
		},
	} {
		if task, err := change(); err != nil || task.Actor != "shop" {
			t.Fatal(task, err)
		}
	}
	many, err := c.EnqueueMany(ctx, []client.NewTask{{Kind: "a", BizID: "1"}, {Kind: "a", BizID: "2"}})
	if err != nil || len(many) != 2 || !many[1].New {
		t.Errorf("%v: %+v", err, many)
	}
	if _, err := c.Cancel(ctx, sendCoupon.Key("a/1"), "withdrawn"); err != nil {
		t.Error(err)
	}
	if err := <-finished; err != nil && !strings.Contains(err.Error(), "dead") { // it may have seen the burial
		t.Error(err)
	}
}

// A change whose answer is lost is not sent again: it would undo what others have done meanwhile. A change that was not
// made, because the server was not reached or has refused it for now, is sent again.
func TestChangesAreNotMadeTwice(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "api", "reader", "producer", "operator")
	owner := ledgertest.As(t, db, ledgertest.Owner)
	_, secret, err := api.CreateToken(t.Context(), db, api.TokenOptions{Name: "shop", Role: api.Operator})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := api.New(api.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	key := sendCoupon.Key("a")
	var requests, dials atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		handler.ServeHTTP(httptest.NewRecorder(), r)
		if requests.Load() == 2 {
			ledgertest.Append(t, owner, key, ledger.EventBuried) // another operator has seen that it is bad
		}
		panic(http.ErrAbortHandler) // the answer is lost
	}))
	defer server.Close()
	defer handler.Drain()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			address = "127.0.0.1:1"
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	defer transport.CloseIdleConnections()
	c, err := client.New(client.Config{URL: server.URL, Token: secret, HTTP: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	ledgertest.Enqueue(t, db, key, `{}`)
	ledgertest.Append(t, owner, key, ledger.EventBuried)
	_, err = c.Release(t.Context(), key, "")
	task, loadErr := ledger.Load(t.Context(), db, key)
	if err == nil || loadErr != nil || task.State != ledger.StateDead || task.Version != 4 {
		t.Errorf("%v, %v: %+v after %d requests", err, loadErr, task, requests.Load())
	}
	if dials.Load() < 2 || requests.Load() != 2 {
		t.Errorf("%d connections and %d requests", dials.Load(), requests.Load())
	}
}

// An enqueue that begins the next run of a task is not sent again if its answer is lost: it would begin another one, if
// the run has finished meanwhile.
func TestRunsAreNotEnqueuedTwice(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "api", "reader", "producer", "operator")
	owner := ledgertest.As(t, db, ledgertest.Owner)
	_, secret, err := api.CreateToken(t.Context(), db, api.TokenOptions{Name: "shop", Role: api.Producer})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := api.New(api.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	key := sendCoupon.Key("a")
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(httptest.NewRecorder(), r)
		ledgertest.Append(t, owner, key, ledger.EventSucceeded)
		panic(http.ErrAbortHandler) // the answer is lost
	}))
	defer server.Close()
	defer handler.Drain()
	c, err := client.New(client.Config{URL: server.URL, Token: secret})
	if err != nil {
		t.Fatal(err)
	}
	for run, again := range []ledger.IfExists{ledger.IfExistsRerun, ledger.IfExistsReplace, ledger.IfExistsRerun} {
		task := client.NewTask{Kind: key.Kind, BizID: key.BizID, IfExists: again}
		if run < 2 {
			_, err = c.Enqueue(t.Context(), task)
		} else {
			_, err = c.EnqueueMany(t.Context(), []client.NewTask{task})
		}
		if got, loadErr := ledger.Load(t.Context(), db, key); err == nil || loadErr != nil || got.Run != run+1 {
			t.Errorf("%s: %v; run %d, want %d, %v", again, err, got.Run, run+1, loadErr)
		}
	}
}

func TestPath(t *testing.T) {
	t.Parallel()
	for id, want := range map[ledger.BizID]string{
		"A-1_~.x": "A-1_~.x", "a/b": "a%2Fb", "a:release": "a%3Arelease", ".": "%2E", "..": "%2E%2E",
		"...": "%2E%2E%2E",
		"ä b": "%C3%A4%20b", "%": "%25",
	} {
		if path := client.Path(ledger.Key{Kind: "c.d", BizID: id}); path != "/v1/tasks/c.d/"+want {
			t.Errorf("%q: %s", id, path)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := client.New(client.Config{URL: "tasks", Attempts: -1, Wait: time.Hour})
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("got %v", err)
	}
}
