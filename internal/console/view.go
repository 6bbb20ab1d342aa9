package console

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed templates
var templateFiles embed.FS

// view is the data for the templates of a page.
type view struct {
	Base, Tag   string // the path of the console, and the tag of its assets
	Name, Title string
	Theme       string      // light or dark; "": the system's
	Done        string      // the result of the session's last act
	Caller      *api.Caller // nil: none is signed in
	HasSession  bool        // the caller has entered a token
	CSRF        string
	At          time.Time // of the answer
	Rail        stateCounts
	troubles    *troubleCounts      // on Overview; nil: not counted
	failed      int64               // checks
	warnings    []string            // names of checks with one
	counts      []ledger.StateCount // see pageCounts; nil: not read
	IsAway      bool                // the caller could not be read: the menu of an error page is without numbers
	Ledger      string              // the name of the ledger among several; "": the only one
	Others      []ledgerLink        // see member.links
	Root        string              // the path of the page of ledgers; "": one ledger
	Data        any
}

// HasMenu reports whether the page shows the menu.
func (v *view) HasMenu() bool { return v.Caller != nil || v.IsAway }

// CanOperate reports whether the caller may change tasks.
func (v *view) CanOperate() bool { return v.Caller != nil && v.Caller.Has(api.Operator) }

// CanEnqueue reports whether the caller may enqueue tasks.
func (v *view) CanEnqueue() bool { return v.Caller != nil && v.Caller.Has(api.Producer) }

// CanControl reports whether the caller may pause and resume kinds and schedules.
func (v *view) CanControl() bool { return v.Caller != nil && v.Caller.Has(api.Admin) }

// pageDef is a page.
type pageDef struct {
	name, path string // name is the path below the console's path
	Title      string
	make       func(*Handler, context.Context, *http.Request, *view) error
}

// parents are the pages of the menu to which the others belong.
var parents = map[string]string{"task": "tasks", "kind": "kinds", "enqueue": "tasks", "limit": "limits",
	"find": ""}

// isListed reports whether the page is in the menu.
func (p pageDef) isListed() bool {
	_, isBelow := parents[p.name]
	return !isBelow
}

// pages are the pages that show the ledger. A function sets them, because templates and functions refer to them.
var pages []pageDef

func init() {
	pages = []pageDef{
		{"", "/{$}", "Overview", (*Handler).showOverview},
		{"tasks", "/tasks", "Tasks", (*Handler).showTasks},
		{"task", "/task", "Task", (*Handler).showTask},
		{"failures", "/failures", "Failures", (*Handler).showFailures},
		{"kinds", "/kinds", "Kinds", (*Handler).showKinds},
		{"kind", "/kind", "Kind", (*Handler).showKind},
		{"limits", "/limits", "Limits", (*Handler).showLimits},
		{"workers", "/workers", "Workers", (*Handler).showWorkers},
		{"schedules", "/schedules", "Schedules", (*Handler).showSchedules},
		{"subscribers", "/subscribers", "Subscribers", (*Handler).showSubscribers},
		{"events", "/events", "Events", (*Handler).showEvents},
		{"system", "/system", "System", (*Handler).showSystem},
		{"enqueue", "/enqueue", "Enqueue a task", (*Handler).showEnqueue},
		{"find", "/find", "Go to", (*Handler).showFind},
	}
}

// templates returns the template of each page, with times in a zone.
func templates(zone *time.Location) map[string]*template.Template {
	all := map[string]*template.Template{}
	base := template.Must(template.New("").Funcs(functions(zone)).ParseFS(templateFiles, "templates/layout.html"))
	entries, err := templateFiles.ReadDir("templates")
	if err != nil {
		panic(err)
	}
	for _, entry := range entries {
		if name, _ := strings.CutSuffix(entry.Name(), ".html"); name != "layout" {
			all[name] = template.Must(template.Must(base.Clone()).ParseFS(templateFiles, "templates/"+entry.Name()))
		}
	}
	return all
}

// functions are the functions that templates call.
func functions(zone *time.Location) template.FuncMap {
	return template.FuncMap{
		"when":    func(t time.Time) template.HTML { return whenTime(t, zone) },
		"ago":     func(now, t time.Time) template.HTML { return agoTime(now, t, zone) },
		"past":    func(now, t time.Time) template.HTML { return agoTime(later(now, t), t, zone) },
		"lasts":   func(now, t time.Time) template.HTML { return timeElement(t, zone, "for "+age(now.Sub(t))) },
		"dur":     age,
		"count":   func(n any) string { return printable.Count(toInt(n)) },
		"counted": func(n any) string { return printable.Counted(toInt(n)) },
		"size":    size,
		"text":    func(s any) string { return printable.Text(toText(s)) },
		"short":   func(limit int, s any) string { return printable.Short(toText(s), limit) },
		"varying": markVariable,
		"parts":   func(limit int, s any) template.HTML { return parts(printable.Short(toText(s), limit)) },
		"ends":    ends,
		"lines":   lines,
		"words":   words,
		"limit":   shortLimit,
		"inc":     func(n int) int { return n + 1 },
		"task":    taskPathOf,
		"kind":    kindPath,
		"label":   func(label string, n any) labelled { return labelled{label, toInt(n)} },
		"query":   query,
		"on":      func(v *view, data any) map[string]any { return map[string]any{"V": v, "Data": data} },
		"pair":    func(base string, node any) map[string]any { return map[string]any{"base": base, "node": node} },
	}
}

// size returns a number of bytes in a unit that fits.
func size(bytes any) string {
	n := float64(toInt(bytes))
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if n < 1024 {
			return fmt.Sprintf("%.3g %s", n, unit)
		}
		n /= 1024
	}
	return fmt.Sprintf("%.3g TiB", n)
}

// labelled is a number with its name.
type labelled struct {
	Label string
	N     int64
}

func toInt(n any) int64 {
	switch n := n.(type) {
	case int:
		return int64(n)
	case int64:
		return n
	case uint64:
		return int64(min(n, 1<<62)) //nolint:gosec // bounded
	}
	return 0
}

func toText(s any) string {
	switch s := s.(type) {
	case string:
		return s
	case ledger.Kind:
		return string(s)
	case ledger.BizID:
		return string(s)
	case ledger.State:
		return string(s)
	case ledger.EventType:
		return string(s)
	case ledger.Key:
		return s.String()
	case health.Name:
		return string(s)
	case api.Role:
		return string(s)
	}
	return ""
}

// partEnds are the characters of keys, besides hyphens, after which a line may break.
const partEnds = ". : @ _ /"

// words returns a name of taskledger, such as in_line, as words.
func words(s any) string { return strings.ReplaceAll(printable.Text(toText(s)), "_", " ") }

// parts returns a text whose lines break between its parts, and within one only where it does not fit.
func parts(s string) template.HTML {
	escaped := template.HTMLEscapeString(s) // its replacements contain none of these characters
	for _, end := range strings.Fields(partEnds) {
		escaped = strings.ReplaceAll(escaped, end, end+"<wbr>")
	}
	return template.HTML(escaped) //nolint:gosec // escaped above
}

// lastPart is the number of characters at the end of a long error that a narrow column shows.
const lastPart = 30

// ends returns an error of which a narrow column shows the beginning and the end, where the cause often is.
func ends(text string) template.HTML {
	text = printable.Text(text)
	all := []rune(text)
	if len(all) > maxErrorShown {
		half := maxErrorShown / 2
		all = slices.Concat(all[:half-1], []rune("…"), all[len(all)-half:])
	}
	if len(all) < 2*lastPart {
		return template.HTML(template.HTMLEscapeString(string(all))) //nolint:gosec // escaped
	}
	first, last := string(all[:len(all)-lastPart]), string(all[len(all)-lastPart:])
	//nolint:gosec // escaped
	return template.HTML(`<span class="ends"><span>` + template.HTMLEscapeString(first) + `</span><span>` +
		template.HTMLEscapeString(last) + `</span></span>`)
}

// lines returns a text with its line ends, in which other characters that are not printable are escaped.
func lines(s string) string {
	all := strings.Split(strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\t", "    "), "\n")
	for i, line := range all {
		all[i] = printable.Text(line)
	}
	return strings.Join(all, "\n")
}

// formatTime returns a time with its zone, "–" for the zero time.
func formatTime(t time.Time, zone *time.Location) string {
	if t.IsZero() {
		return "–"
	}
	return t.In(zone).Format("2006-01-02 15:04:05 MST")
}

// whenTime returns a time as an element, to the second and with its zone.
func whenTime(t time.Time, zone *time.Location) template.HTML {
	return timeElement(t, zone, formatTime(t, zone))
}

// agoTime returns how long t is before or after now, as an element with the exact time.
func agoTime(now, t time.Time, zone *time.Location) template.HTML {
	text := age(now.Sub(t).Abs())
	switch d := now.Sub(t); {
	case d > -time.Second && d < time.Second:
		text = "now"
	case d < 0:
		text = "in " + text
	default:
		text += " ago"
	}
	return timeElement(t, zone, text)
}

// timeElement returns a text for a time as an element with the exact time.
func timeElement(t time.Time, zone *time.Location, text string) template.HTML {
	if t.IsZero() {
		return "–"
	}
	exact := t.In(zone).Format("2006-01-02 15:04:05.000 MST")
	//nolint:gosec // times and the names of zones have no markup
	return template.HTML(`<time datetime="` + t.UTC().Format(time.RFC3339Nano) + `" title="` + exact + `">` +
		template.HTMLEscapeString(text) + `</time>`)
}

// age returns a duration in its largest unit, rounded down, for people.
func age(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(0, d.Milliseconds()))
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}

// taskPath returns the address of a task, below the console's path.
func taskPath(k ledger.Key) template.URL {
	return "task?" + query("kind", k.Kind, "biz_id", k.BizID)
}

// kindPath returns the address of a kind, below the console's path.
func kindPath(k ledger.Kind) template.URL { return "kind?" + query("name", k) }

// query returns parameters. It leaves out empty ones.
func query(pairs ...any) template.URL {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		text := toText(pairs[i+1])
		if n := toInt(pairs[i+1]); n != 0 {
			text = strconv.FormatInt(n, 10)
		}
		if text != "" {
			values.Set(toText(pairs[i]), text)
		}
	}
	return template.URL(values.Encode()) //nolint:gosec // it is encoded
}

// redirection is the error of a page that leads to another address, below the console's path.
type redirection template.URL

func (r redirection) Error() string { return "the page is at " + string(r) }

// servePage returns the handler of a page.
func (h *Handler) servePage(p pageDef) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := h.admit(r)
		if isUnauthenticated(err) && isLinkOfOtherSite(r) {
			h.loadAgain(w)
			return
		}
		if isUnauthenticated(err) {
			next := localPath(p.name + "?" + r.URL.RawQuery)
			data := signInData{Next: next}
			if h.cookie(r, tokenCookie) != "" {
				data.Problem, data.Cure = "The token has expired, or was revoked.", "Enter a new token."
			}
			h.askToSignIn(w, r, http.StatusUnauthorized, data)
			return
		}
		if err != nil {
			h.failAs(w, r, &view{IsAway: isAway(err)}, err)
			return
		}
		v := h.newView(w, r, c)
		v.Name, v.Title = p.name, p.Title
		ctx, cancel := database(r)
		defer cancel()
		if !c.IsLimited() {
			h.renewChecks(r)
		}
		go func() { // while the page is made, which needs them at its end
			ctx, cancel := database(r)
			defer cancel()
			if p.name == "" {
				_, _ = h.readReport(ctx) // an error is not kept: the next call reads again
			} else {
				_, _ = h.countTroubles(ctx, c)
			}
		}()
		err = p.make(h, ctx, r, v)
		var to redirection
		if errors.As(err, &to) {
			http.Redirect(w, r, h.config.Base+string(to), http.StatusSeeOther)
			return
		}
		if err != nil {
			h.failAs(w, r, v, err)
			return
		}
		v.Done = h.takeDone(w, r)
		h.renderCounted(w, r, http.StatusOK, templateName(p.name), v)
	}
}

func templateName(page string) string {
	if page == "" {
		return "overview"
	}
	return page
}

// newView returns the view of a caller.
func (h *Handler) newView(w http.ResponseWriter, r *http.Request, c api.Caller) *view {
	return &view{Caller: &c, HasSession: h.cookie(r, tokenCookie) != "", At: time.Now(),
		CSRF: formToken(h.formKey(w, r), c.ID())}
}

// database returns the context of statements for a request. They do not end when the client goes, because that would
// cost the connection.
func database(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), timeout)
}

// fail answers with the page of an error, for a caller that need not be known.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	v := &view{}
	c, admitErr := h.admit(r)
	switch {
	case admitErr == nil:
		v = h.newView(w, r, c)
	case isAway(admitErr):
		v.IsAway = true
	}
	h.failAs(w, r, v, err)
}

// isAway reports whether an error is one of the server or of its database, not of the caller.
func isAway(err error) bool {
	p, _ := api.Describe(err)
	return p.Status >= http.StatusInternalServerError
}

func (h *Handler) failAs(w http.ResponseWriter, r *http.Request, v *view, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return // the client has gone
	}
	f := h.explain(r, err)
	v.Name, v.Title = "error", f.title
	v.Data = newFailureData(f)
	if v.Caller != nil && f.status < http.StatusInternalServerError {
		h.renderCounted(w, r, f.status, "error", v)
		return
	}
	h.render(w, r, f.status, "error", v)
}

// failureData is the content of the page of an error.
type failureData struct {
	Status              int
	Title, Detail, Cure string
}

func newFailureData(f *failure) failureData { return failureData{f.status, f.title, f.detail, f.cure} }

// renderCounted answers with a page that has the numbers in the menu.
func (h *Handler) renderCounted(w http.ResponseWriter, r *http.Request, status int, name string, v *view) {
	ctx, cancel := database(r)
	defer cancel()
	h.addNumbers(ctx, v)
	h.render(w, r, status, name, v)
}

// render answers with a page.
func (h *Handler) render(w http.ResponseWriter, r *http.Request, status int, name string, v *view) {
	v.Base = h.config.Base
	if h.among != nil {
		v.Ledger, v.Root, v.Others = h.among.name, h.among.of.base, h.among.links(r, v.Caller)
	}
	h.write(w, r, status, name, v)
}

// write answers with a page below the path in its view.
func (h *Handler) write(w http.ResponseWriter, r *http.Request, status int, name string, v *view) {
	v.Tag, v.Theme = assetsTag(), theme(r)
	if v.At.IsZero() {
		v.At = time.Now()
	}
	var body bytes.Buffer
	t := h.templates[name]
	if err := t.ExecuteTemplate(&body, "layout", v); err != nil {
		h.config.Logger.ErrorContext(r.Context(), "page failed", "error", err)
		http.Error(w, "the page cannot be made; see the log of the server", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout))
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes())
}

// taskPathOf returns the address of a task for templates, in which a key may be a pointer.
func taskPathOf(k any) template.URL {
	if p, isPointer := k.(*ledger.Key); isPointer {
		return taskPath(*p)
	}
	key, _ := k.(ledger.Key)
	return taskPath(key)
}
