package console

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/api"
)

// maxLedgerWait is how long the page of ledgers waits for their states, which are read at the same time.
const maxLedgerWait = 2 * time.Second

// ledgerName is the form of names, which are part of addresses and of the names of cookies.
var ledgerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckLedgerName returns an error unless the name can be one of several ledgers'.
func CheckLedgerName(name string) error {
	if !ledgerName.MatchString(name) {
		return fmt.Errorf("the name of a ledger must be 1 to 64 letters, digits, dots, hyphens and underscores, "+
			"and begin with a letter or a digit, got %q", name)
	}
	return nil
}

// LedgerBase returns the path of the console of a ledger, for [Config].Base. base is that of the [Ledgers].
func LedgerBase(base, name string) string { return base + "ledgers/" + name + "/" }

// Ledgers is a console over several ledgers: a page with the state of each, and below it the console of each. It is
// safe for concurrent use.
//
// Each ledger has its own callers. The page shows a ledger to the callers that it admits, and otherwise not even its
// name. A ledger that cannot be read is shown to the browsers that have a session there, and does not delay the others.
type Ledgers struct {
	base  string
	names []string // sorted
	of    map[string]*Handler
	first *Handler // whose settings are those of the page
}

// member is the place of a console among those of several ledgers.
type member struct {
	name string
	of   *Ledgers
}

// NewLedgers returns the console over the ledgers with these names. Each handler has the Base [LedgerBase], serves no
// request yet, and belongs to no other Ledgers.
func NewLedgers(base string, of map[string]*Handler) (*Ledgers, error) {
	faults := []error{checkBase(base)}
	if len(of) == 0 {
		faults = append(faults, errors.New("console: there is no ledger"))
	}
	l := &Ledgers{base: base, names: slices.Sorted(maps.Keys(of)), of: of}
	for _, name := range l.names {
		if err := CheckLedgerName(name); err != nil {
			faults = append(faults, fmt.Errorf("console: %w", err))
		} else if got, want := of[name].config.Base, LedgerBase(base, name); got != want {
			faults = append(faults, fmt.Errorf("console: Base of %s must be %s, got %s", name, want, got))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	l.first = of[l.names[0]]
	for name, h := range of {
		h.among = &member{name, l}
	}
	return l, nil
}

// ServeHTTP answers a request.
func (l *Ledgers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rest, isBelow := strings.CutPrefix(r.URL.Path, l.base)
	below, isOfLedger := strings.CutPrefix(rest, "ledgers/")
	name, _, isWhole := strings.Cut(below, "/")
	h := l.of[name]
	switch {
	case isBelow && isOfLedger && h != nil && isWhole:
		h.ServeHTTP(w, r)
		return
	case isBelow && isOfLedger && h != nil && r.Method == http.MethodGet:
		http.Redirect(w, r, h.config.Base, http.StatusSeeOther)
		return
	}
	l.first.setHeaders(w, r)
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "only the console of a ledger changes anything", http.StatusMethodNotAllowed)
	case isBelow && rest == "":
		l.show(w, r)
	case isBelow && rest == "open":
		l.open(w, r)
	case strings.HasPrefix(rest, "assets/"):
		r.SetPathValue("name", strings.TrimPrefix(rest, "assets/"))
		serveAsset(w, r)
	default:
		l.fail(w, r, &failure{status: http.StatusNotFound, title: "There is no such page.",
			cure: "choose a ledger on the first page, or check its name in the address"})
	}
}

// open leads to the page on which the caller signs in to a ledger.
func (l *Ledgers) open(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimSpace(r.URL.Query().Get("ledger"))
	if err := CheckLedgerName(name); err != nil {
		l.fail(w, r, invalid("%s", err))
		return
	}
	//nolint:gosec // the name has no slash: it is a path of this console
	http.Redirect(w, r, LedgerBase(l.base, name)+"sign-in", http.StatusSeeOther)
}

// ledgersData is the content of the page of ledgers.
type ledgersData struct {
	Ledgers []*ledgerNow
	Address string // of this page, for a command
}

// ledgerNow is the state of a ledger, as a caller may read it.
type ledgerNow struct {
	Name, Base    string
	Problem, Cure string // why the state cannot be read; "": it was read
	Caller        string
	IsLimited     bool // to kinds: the conditions are not read
	Troubles      troubleCounts
	Tasks         stateCounts
	Oldest        string // how long the oldest available task has waited
	Lag           time.Duration
}

// Lasts returns the lag, "–" for zero.
func (l *ledgerNow) Lasts() string {
	if l.Lag <= 0 {
		return "–"
	}
	return age(l.Lag)
}

func (l *Ledgers) show(w http.ResponseWriter, r *http.Request) {
	if isLinkOfOtherSite(r) {
		l.first.loadAgain(w)
		return
	}
	scheme := "http://"
	if l.first.isSecure(r) {
		scheme = "https://"
	}
	d := &ledgersData{Ledgers: l.read(r), Address: scheme + r.Host + l.base}
	v := &view{Title: "Ledgers", Data: d, troubles: &troubleCounts{}, Root: l.base}
	for _, n := range d.Ledgers {
		v.troubles.Critical += n.Troubles.Critical
		v.troubles.Warning += n.Troubles.Warning
		if n.Problem != "" {
			v.troubles.Critical++
		}
	}
	l.render(w, r, http.StatusOK, "ledgers", v)
}

// read returns the states of the ledgers that the caller may read.
func (l *Ledgers) read(r *http.Request) (all []*ledgerNow) {
	ctx, cancel := context.WithTimeout(r.Context(), maxLedgerWait)
	defer cancel()
	later := r.Clone(context.WithoutCancel(r.Context())) // a late answer is for the next request
	answers := make([]chan *ledgerNow, len(l.names))
	for i, name := range l.names {
		answers[i] = make(chan *ledgerNow, 1)
		go func() { answers[i] <- l.of[name].readNow(later) }()
	}
	for i, name := range l.names {
		var now *ledgerNow
		select {
		case now = <-answers[i]:
		case <-ctx.Done():
			select {
			case now = <-answers[i]: // it was in time
			default:
				now = l.of[name].unreadable(r, &failure{title: "It did not answer within 2 s.",
					cure: cures["unavailable"]})
			}
		}
		if now != nil {
			all = append(all, now)
		}
	}
	return all
}

// readNow returns the state of the ledger, nil if it does not admit the caller.
func (h *Handler) readNow(r *http.Request) *ledgerNow {
	c, err := h.admit(r)
	switch {
	case isUnauthenticated(err):
		return nil
	case err != nil:
		return h.unreadable(r, h.explain(r, err))
	}
	ctx, cancel := database(r)
	defer cancel()
	now := &ledgerNow{Name: h.among.name, Base: h.config.Base, Caller: c.Name(), IsLimited: c.IsLimited()}
	if err := h.addNow(ctx, c, now); err != nil {
		f := h.explain(r, err)
		now.Problem, now.Cure = f.title, f.cure
	}
	return now
}

// addNow reads the state of the ledger for a caller.
func (h *Handler) addNow(ctx context.Context, c api.Caller, now *ledgerNow) error {
	v := &view{Caller: &c, At: time.Now()}
	kinds, total, _, err := h.readKinds(ctx, v)
	if err != nil {
		return err
	}
	d := &overviewData{IsLimited: c.IsLimited()}
	if err := h.addTroubles(ctx, v, d, kinds); err != nil {
		return err
	}
	now.Troubles, now.Tasks, now.Oldest = newTroubleCounts(d.Troubles), total.Tasks, total.Oldest(v.At)
	h.keptTroubles(c).set(now.Troubles)
	if c.IsLimited() {
		return nil
	}
	report, err := h.readReport(ctx) // which addTroubles has read
	now.Lag = time.Duration(report.Projection.OldestWaitingMS) * time.Millisecond
	if !report.Outbox.IsOff {
		now.Lag = max(now.Lag, report.Outbox.OldestWaiting)
	}
	return err
}

// unreadable returns the state of a ledger that cannot authenticate the caller. It is nil unless the browser has a
// session there, or the connection names the caller.
func (h *Handler) unreadable(r *http.Request, f *failure) *ledgerNow {
	if h.cookie(r, tokenCookie) == "" && !h.config.API.IsNamed(r) {
		return nil
	}
	return &ledgerNow{Name: h.among.name, Base: h.config.Base, Problem: f.title, Cure: f.cure}
}

// ledgerLink leads to the console of another ledger.
type ledgerLink struct{ Name, Href string }

// links returns the other ledgers in which the browser has a session, all for a caller without authentication.
func (m *member) links(r *http.Request, c *api.Caller) (all []ledgerLink) {
	for _, name := range m.of.names {
		h := m.of.of[name]
		if name != m.name && (h.cookie(r, tokenCookie) != "" || c != nil && c.IsAnonymous()) {
			all = append(all, ledgerLink{name, h.config.Base})
		}
	}
	return all
}

// fail answers with the page of an error.
func (l *Ledgers) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := l.first.explain(r, err)
	l.render(w, r, f.status, "error", &view{Title: f.title, Root: l.base, Data: newFailureData(f)})
}

func (l *Ledgers) render(w http.ResponseWriter, r *http.Request, status int, name string, v *view) {
	v.Name, v.Base = name, l.base
	l.first.write(w, r, status, name, v)
}
