package console

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/cache"
	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

//go:embed assets
var assetFiles embed.FS

// assetsTag changes with the assets, so that a browser may keep them.
var assetsTag = sync.OnceValue(func() string {
	sum := sha256.New()
	_ = fs.WalkDir(assetFiles, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			text, _ := assetFiles.ReadFile(name)
			sum.Write(text)
		}
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)[:6])
})

// Handler is the console. It is safe for concurrent use.
type Handler struct {
	config    Config
	mux       *http.ServeMux
	templates map[string]*template.Template
	origins   *http.CrossOriginProtection
	among     *member // nil: it is the only console
	rates     keyed[ratesKey, knownRates]
	counts    cache.Value[[]ledger.StateCount]
	hour      cache.Value[[]projector.KindStats] // the last one, by minute and kind
	recent    cache.Value[[]recentWords]
	report    kept[health.Report]
	troubles  keyed[string, kept[troubleCounts]] // by caller, "" for all that are not limited

	checking sync.Mutex // held while checks are made
	keeping  sync.Mutex // held while kept checks are read or changed
	checks   []Check
	checked  time.Time
}

// New returns the handler. It returns the error of [Config.Validate].
func New(c Config) (*Handler, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	h := &Handler{config: c, mux: http.NewServeMux(), origins: http.NewCrossOriginProtection(),
		templates: templates(c.Zone)}
	for _, p := range pages {
		h.mux.HandleFunc("GET "+p.path, h.servePage(p))
	}
	h.mux.HandleFunc("POST /act", h.act)
	h.mux.HandleFunc("POST /bulk", h.bulk)
	h.mux.HandleFunc("POST /kind", h.change("kinds", h.pauseKind))
	h.mux.HandleFunc("POST /limit", h.limit)
	h.mux.HandleFunc("POST /schedule", h.change("schedules", h.changeSchedule))
	h.mux.HandleFunc("POST /subscriber", h.change("subscribers", h.changeSubscriber))
	h.mux.HandleFunc("POST /group", h.change("failures", h.changeGroup))
	h.mux.HandleFunc("POST /enqueue", h.enqueue)
	h.mux.HandleFunc("GET /stream", h.stream)
	h.mux.HandleFunc("GET /sign-in", h.showSignIn)
	h.mux.HandleFunc("POST /sign-in", h.signIn)
	h.mux.HandleFunc("POST /sign-out", h.signOut)
	h.mux.HandleFunc("GET /assets/{name}", serveAsset)
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		h.fail(w, r, &failure{status: http.StatusNotFound, title: "There is no such page.",
			cure: "choose a page of the menu, or search the task"})
	})
	return h, nil
}

// policy is the Content-Security-Policy of all answers.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; " +
	"connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// setHeaders sets the headers of all answers.
func (h *Handler) setHeaders(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "same-origin") // with no-referrer the Origin of a form is null
	if h.isSecure(r) {                           // without TLS browsers ignore it, and report that
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
	}
	header.Set("Cache-Control", "no-store")
}

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.setHeaders(w, r)
	if r.ContentLength != 0 { // not every server has deadlines
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout))
	}
	if err := h.origins.Check(r); err != nil {
		h.fail(w, r, &failure{status: http.StatusForbidden, title: "A page of another origin may not change anything.",
			cure: "open the console itself"})
		return
	}
	rest, isBelow := strings.CutPrefix(r.URL.Path, strings.TrimSuffix(h.config.Base, "/"))
	if !isBelow || rest != "" && rest[0] != '/' {
		http.NotFound(w, r)
		return
	}
	below := r.Clone(r.Context())
	below.URL.Path, below.URL.RawPath = path.Join("/", rest), ""
	h.mux.ServeHTTP(w, below)
}

func serveAsset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	text, err := assetFiles.ReadFile("assets/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	kind := mime.TypeByExtension(path.Ext(name))
	if path.Ext(name) == ".woff2" { // not every system knows it
		kind = "font/woff2"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(text)
}

// readReport returns a report of health, which may be some seconds old.
func (h *Handler) readReport(ctx context.Context) (health.Report, error) {
	return h.report.get(func() (health.Report, error) { return h.config.Report(ctx) })
}

// failure is an error for a page.
type failure struct {
	status              int
	title, detail, cure string
}

func (f *failure) Error() string { return f.title + " " + f.detail }

// invalid returns the failure of a parameter or a field.
func invalid(format string, a ...any) error {
	return &failure{status: http.StatusBadRequest, title: "The request is invalid.", detail: fmt.Sprintf(format, a...),
		cure: "go back, and correct it"}
}

// explain returns the failure that an error means, and logs one of the server.
func (h *Handler) explain(r *http.Request, err error) *failure {
	var known *failure
	if errors.As(err, &known) {
		return known
	}
	p, isExpected := api.Describe(err)
	if !isExpected {
		h.config.Logger.ErrorContext(r.Context(), "page failed", "method", r.Method, "error", err)
	}
	isOwnCure := errors.Is(err, ledger.ErrNotMigrated) || errors.As(err, new(*ledger.ArchivedError)) ||
		errors.As(err, new(*archive.UnreadableError))
	if cure, isKnown := cures[p.Code]; isKnown && !isOwnCure {
		p.Cure = cure
	}
	return &failure{status: p.Status, title: p.Title, detail: p.Detail, cure: p.Cure}
}

// cures contains the cures for people by the code of a problem, where the API's cure is for programs.
var cures = map[string]string{
	"invalid":          "go back, and correct it",
	"forbidden":        "sign in with a token of the named role",
	"kind_forbidden":   "sign in with a token for the kind",
	"not_found":        "load the page Schedules again: the schedule may have been removed",
	"unknown_task":     "search the task on the page Tasks: the kind or the biz_id in the address may be wrong",
	"state":            "load the page of the task again, and decide again",
	"conflict":         "load the page of the task again, and decide again",
	"too_large":        "go back, and select less",
	"overloaded":       "wait some seconds, then load the page again",
	"rate":             "wait some seconds, then load the page again",
	"unavailable":      "is PostgreSQL running? the server's log contains the reason; then reload the page",
	"too_many_waiting": "wait some seconds, then load the page again",
	"shutdown":         "load the page again",
}
