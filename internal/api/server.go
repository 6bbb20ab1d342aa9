package api

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/printable"
)

// Handler is the API. It is safe for concurrent use, and may be mounted below a mux of yours: it serves the paths that
// begin with /v1/, and /version.
type Handler struct {
	config   Config
	mux      *http.ServeMux
	registry *registry
	operator *operator.Operator
	hub      *hub
	reports  *reports
	kinds    *kindNames
	origins  *http.CrossOriginProtection

	waiting  *places       // of requests that wait and of streams
	catchUps chan struct{} // one for each page of the past that is being read
	past     sendBuffer    // pages of the past, to streams
	answers  sendBuffer    // large answers

	draining context.Context // done after Drain
	drain    func()
}

// New returns the handler. It returns the error of [Config.Validate].
func New(c Config) (*Handler, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	o := operator.New(c.DB)
	h := &Handler{
		config: c, mux: http.NewServeMux(), operator: o, registry: newRegistry(c.DB, c.Rate),
		origins: http.NewCrossOriginProtection(), waiting: newPlaces(c.bounds.waiting),
		reports: newReports(c), kinds: newKindNames(c.DB, c.Logger),
		catchUps: make(chan struct{}, max(1, int(c.DB.Config().MaxConns)/4)),
	}
	h.past.limit, h.answers.limit = c.bounds.streamBytes, maxAnswersBytes
	h.hub = newHub(c.DB, c.bounds.streamBytes, c.Logger)
	draining, drain := context.WithCancel(context.Background())
	h.draining = draining
	h.drain = sync.OnceFunc(func() {
		drain()
		h.hub.close()
	})
	for _, o := range operations {
		h.mux.HandleFunc(o.method+" "+o.path, h.serve(o))
	}
	return h, nil
}

// Drain ends all waiting requests, with the answer that they would give when their time is up, and all streams. Later
// requests that would wait are answered at once. Call it when the server begins to shut down:
// [http.Server.RegisterOnShutdown] does.
func (h *Handler) Drain() {
	h.drain()
}

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if err := checkURL(r); err != nil {
		h.fail(w, r, err)
		return
	}
	if r.ContentLength != 0 { // covers the rest of a body after the answer; not every server has deadlines
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.config.bounds.read))
	}
	if err := h.origins.Check(r); err != nil {
		h.fail(w, r, problem(codeCrossOrigin, err.Error()))
		return
	}
	r = escapeSlash(r)
	if found, pattern := h.mux.Handler(r); pattern == "" || isRedirect(found) {
		h.refuse(w, r)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// slash stands for the biz_id "/" in a path, because [http.ServeMux] lacks a wildcard for it. No client can send it.
const slash = "\x00"

// escapeSlash returns a request whose path has slash in place of a segment %2F.
func escapeSlash(r *http.Request) *http.Request {
	path := r.URL.EscapedPath()
	if upper := strings.ToUpper(path); !strings.Contains(upper, "/%2F/") && !strings.HasSuffix(upper, "/%2F") {
		return r
	}
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if strings.EqualFold(segment, "%2F") {
			segments[i] = "%00"
		}
	}
	clone := *r
	clone.URL = &url.URL{RawPath: strings.Join(segments, "/"), RawQuery: r.URL.RawQuery}
	clone.URL.Path, _ = url.PathUnescape(clone.URL.RawPath) // it was valid before
	return &clone
}

// isRedirect reports whether the mux would redirect to a cleaned path, which names another task.
func isRedirect(found http.Handler) bool {
	_, isOperation := found.(http.HandlerFunc)
	return !isOperation
}

// refuse answers a request that no operation serves.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request) {
	allowed := ""
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
		http.MethodDelete} {
		probe := r.Clone(r.Context())
		probe.Method = method
		if found, pattern := h.mux.Handler(probe); pattern != "" && !isRedirect(found) {
			if allowed != "" {
				allowed += ", "
			}
			allowed += method
		}
	}
	if allowed != "" {
		w.Header().Set("Allow", allowed)
		h.fail(w, r, problem(codeMethod, "the resource does not support the method "+printable.Short(r.Method, 20)))
		return
	}
	h.fail(w, r, problem(codeNotFound, "there is no call with the path "+printable.Short(r.URL.EscapedPath(), 200)))
}

// serve returns the handler of an operation: it authenticates the caller, and checks its role and its rate.
func (h *Handler) serve(o operation) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := h.Admit(r, o.least)
		if err != nil {
			h.fail(w, r, err)
			return
		}
		if err := o.handle(h, w, r, c.c); err != nil {
			h.fail(w, r, err)
		}
	}
}

// database returns the context of statements for a request. They do not end when the client goes, because that would
// cost the connection.
func database(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), databaseTimeout)
}
