package browser_test

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/console"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// restartable is a site whose server ends and starts again at the same address.
type restartable struct {
	*site
	t       *testing.T
	server  *http.Server
	ended   chan struct{} // closed when server listens no more
	callers *api.Handler
	streams atomic.Int64 // that were asked for since the start
}

func serveRestartable(t *testing.T) *restartable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &restartable{t: t, site: &site{t: t, url: "http://" + l.Addr().String(),
		db: ledgertest.Pool(t, databaseRoles...)}}
	r.start(l)
	t.Cleanup(r.stop)
	return r
}

// listen listens on the address of the site, which has just become free.
func (r *restartable) listen() net.Listener {
	r.t.Helper()
	l, err := net.Listen("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

func (r *restartable) start(l net.Listener) {
	r.t.Helper()
	log := slog.New(slog.NewTextHandler(r.t.Output(), nil))
	var err error
	if r.callers, err = api.New(api.Config{DB: r.db, Logger: log}); err != nil {
		r.t.Fatal(err)
	}
	handler, err := console.New(console.Config{DB: r.db, API: r.callers, Logger: log})
	if err != nil {
		r.t.Fatal(err)
	}
	r.serve(l, handler)
}

// serve serves a handler and counts the streams that are asked for.
func (r *restartable) serve(l net.Listener, handler http.Handler) {
	r.streams.Store(0)
	r.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, request *http.Request) {
			if request.URL.Path == "/stream" {
				r.streams.Add(1)
			}
			handler.ServeHTTP(w, request)
		})}
	server, ended := r.server, make(chan struct{})
	r.ended = ended
	go func() {
		defer close(ended)
		_ = server.Serve(l)
	}()
}

// closeServer closes the server, and returns when its address is free.
func (r *restartable) closeServer() {
	_ = r.server.Close()
	<-r.ended // Close does not close a listener that Serve has not begun to use; Serve does
}

func (r *restartable) stop() {
	if r.callers != nil {
		r.callers.Drain()
		r.callers = nil
	}
	r.closeServer()
}

// asksForStream reports whether a stream has been asked for since the start, or is within some time.
func (r *restartable) asksForStream(within time.Duration) bool {
	for begun := time.Now(); r.streams.Load() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > within {
			return false
		}
	}
	return true
}

// awaitStream waits until a stream has been asked for since the start.
func (r *restartable) awaitStream() {
	r.t.Helper()
	if !r.asksForStream(time.Minute) {
		r.t.Fatal("no stream was asked for")
	}
}

// A page that is open while the server ends, answers with errors and starts again follows the ledger again, and its
// form works.
func TestRestartUnderAPageInABrowser(t *testing.T) {
	t.Parallel()
	findChromium(t)
	r := serveRestartable(t)
	ledgertest.Enqueue(t, r.db, ledgertest.Key(t, "coupon.send/order-1"), `{}`)
	r.project()
	c := r.open(t, 1280, 900)
	c.signInAs(api.Operator)
	c.visit("/tasks")
	c.do(chromedp.WaitVisible(chromedp.CSS("#live")))
	r.awaitStream()

	r.stop()
	c.shows("The server does not answer.")
	r.serve(r.listen(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable) // as serve does during its shutdown, and proxies without it
	}))
	// The browser gives a stream up that is answered so. It asks for none if the ending server has answered so already.
	r.asksForStream(10 * time.Second)
	c.shows("The server answers with status 503.")
	r.stop()
	r.start(r.listen())
	r.awaitStream()
	ledgertest.Enqueue(t, r.db, ledgertest.Key(t, "coupon.send/after"), `{}`)
	r.project()
	c.shows("after")
	if hidden := read(c, chromedp.Evaluate[bool](`document.getElementById("banner").hidden`)); !hidden {
		t.Error("the page still has a message")
	}

	c.visit("/tasks?prefix=order-1")
	r.stop()
	r.start(r.listen())
	c.do(chromedp.Click(chromedp.CSS(`tbody input[type=checkbox]`)),
		chromedp.Click(chromedp.CSS(`button[value=cancel]`)))
	c.shows("1 of 1 tasks can be changed")
	r.stop()
	r.start(r.listen())
	c.do(chromedp.SendKeys(chromedp.CSS(`input[name=reason]`), "ordered twice"),
		chromedp.Click(chromedp.CSS(`main form button.danger`)))
	c.shows("1 of 1 tasks were changed")
}

// A page that is open while the server is replaced by another version is loaded anew, with its script and styles.
func TestOtherVersionUnderAPageInABrowser(t *testing.T) {
	t.Parallel()
	findChromium(t)
	r := serveRestartable(t)
	c := r.open(t, 1280, 900)
	c.signInAs(api.Viewer)
	c.visit("/tasks")
	c.do(chromedp.WaitVisible(chromedp.CSS("#live")))
	read(c, chromedp.Evaluate[chromedp.Void]("document.body.dataset.isOld = true"))
	r.stop()
	r.start(r.listen())
	next := r.server.Handler
	r.closeServer()
	r.serve(r.listen(), http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/tasks" {
			next.ServeHTTP(w, request)
			return
		}
		page := httptest.NewRecorder()
		next.ServeHTTP(page, request)
		w.WriteHeader(page.Code)
		_, _ = io.WriteString(w, strings.ReplaceAll(page.Body.String(), "console.js?v=", "console.js?v=next-"))
	}))
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		isOld, err := chromedp.Run(c.ctx, chromedp.Evaluate[bool]("document.body.dataset.isOld === 'true'"))
		if err == nil && !isOld {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatalf("the page is not loaded anew: %v", err)
		}
	}
	c.do(chromedp.WaitVisible(chromedp.CSS("#live")))
}

// revoke revokes all tokens.
func revoke(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	all, err := api.ReadTokens(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range all {
		if ok, err := api.RevokeToken(t.Context(), ledgertest.As(t, db, "operator"), token.ID, ""); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
}

// A page whose token is revoked shows that, also while tasks are selected on it, and its form changes nothing.
func TestRevokedTokenInABrowser(t *testing.T) {
	t.Parallel()
	findChromium(t)
	s := serve(t)
	key := ledgertest.Key(t, "coupon.send/order-1")
	ledgertest.Enqueue(t, s.db, key, `{}`)
	s.project()
	c := s.open(t, 1280, 900)
	c.signInAs(api.Operator)
	c.visit("/tasks")
	c.do(chromedp.WaitVisible(chromedp.CSS("#live")), chromedp.Click(chromedp.CSS(`tbody input[type=checkbox]`)))
	revoke(t, s.db)
	c.shows("The session has ended. Reload the page to sign in")
	c.do(chromedp.Click(chromedp.CSS(`button[value=cancel]`)))
	c.shows("Your session has ended. Nothing was changed.")
	c.signInAs(api.Operator)
	if got, err := ledger.Load(t.Context(), s.db, key); err != nil || got.State != ledger.StateAvailable {
		t.Errorf("got the task %v, %v", got, err)
	}
}
