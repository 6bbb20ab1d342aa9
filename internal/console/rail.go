package console

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/printable"
)

// themeCookie is the cookie with the theme that a person has chosen. The script sets it.
const themeCookie = "taskledger_theme"

// theme returns light or dark, or "" for the theme of the system.
func theme(r *http.Request) string {
	if c, err := r.Cookie(themeCookie); err == nil && (c.Value == "light" || c.Value == "dark") {
		return c.Value
	}
	return ""
}

// addNumbers adds the numbers in the menu, as the caller may read them. A number that cannot be read is left out.
func (h *Handler) addNumbers(ctx context.Context, v *view) {
	counts, err := h.pageCounts(ctx, v)
	if err == nil {
		v.Rail = stateCounts{}
		for _, n := range counts {
			v.Rail.add(n)
		}
	}
	if v.troubles == nil {
		if n, err := h.countTroubles(ctx, *v.Caller); err == nil {
			v.troubles = &n
		}
	}
	if !v.Caller.IsLimited() {
		v.failed, v.warnings = h.countChecks()
	}
}

// troubleCounts is the numbers of cards on Overview.
type troubleCounts struct{ Critical, Warning int64 }

// newTroubleCounts counts cards.
func newTroubleCounts(all []trouble) (n troubleCounts) {
	for _, t := range all {
		switch t.Level {
		case critical:
			n.Critical++
		case warning:
			n.Warning++
		case note, paused, fine:
		}
	}
	return n
}

// keptTroubles returns the numbers of cards that the pages of a caller show.
func (h *Handler) keptTroubles(c api.Caller) *kept[troubleCounts] {
	key := ""
	if c.IsLimited() {
		key = c.ID()
	}
	return h.troubles.of(key)
}

// countTroubles returns the numbers of cards that Overview shows to a caller.
func (h *Handler) countTroubles(ctx context.Context, c api.Caller) (troubleCounts, error) {
	return h.keptTroubles(c).get(func() (troubleCounts, error) {
		v := &view{Caller: &c, At: time.Now()}
		kinds, _, _, err := h.readKinds(ctx, v)
		if err != nil {
			return troubleCounts{}, err
		}
		d := &overviewData{IsLimited: c.IsLimited()}
		err = h.addTroubles(ctx, v, d, kinds)
		return newTroubleCounts(d.Troubles), err
	})
}

// Troubles returns the number of cards on Overview.
func (v *view) Troubles() int64 {
	if v.troubles == nil {
		return 0
	}
	return v.troubles.Critical + v.troubles.Warning
}

// Warnings returns the names of checks with a warning.
func (v *view) Warnings() []string { return v.warnings }

// Icon returns the name of the icon of the page, which shows the worst card on Overview.
func (v *view) Icon() string {
	switch {
	case v.Troubles() == 0:
		return "icon"
	case v.troubles.Critical > 0:
		return "icon-critical"
	}
	return "icon-warning"
}

// menuLink is a link of the menu, with numbers.
type menuLink struct {
	Href, Title, Current string
	Counts               []menuCount
}

// menuCount is a number of a state.
type menuCount struct{ Class, Text, Title, About string }

// firstPages is the number of pages that the menu of a phone shows. The others are behind More.
const firstPages = 3

// Menu returns the links of the first pages for part 0, and of the others for part 1.
func (v *view) Menu(part int) (all []menuLink) {
	n := 0
	for _, p := range pages {
		if !p.isListed() || p.name == "system" && v.Caller != nil && v.Caller.IsLimited() {
			continue
		}
		if n++; (n > firstPages) != (part == 1) {
			continue
		}
		l := menuLink{Href: v.Base + p.name, Title: p.Title}
		switch {
		case p.name == v.Name:
			l.Current = "page"
		case p.name != "" && p.name == parents[v.Name]:
			l.Current = "true"
		}
		switch p.name {
		case "":
			if v.troubles != nil {
				l.add("warnings", v.troubles.Warning, "with a warning on Overview")
				l.add("badge", v.troubles.Critical, "critical on Overview")
			}
		case "system":
			l.addChecks(v)
		case "tasks":
			l.add("running", v.Rail.Running(), "running")
		case "failures":
			l.add("retrying", v.Rail.Retrying(), "retrying")
			l.add("dead", v.Rail.Dead(), "dead")
		}
		all = append(all, l)
	}
	return all
}

// More returns the link to the pages that the menu of a phone hides, with the numbers of System.
func (v *view) More() *menuLink {
	l := &menuLink{Href: "#more", Title: "More"}
	l.addChecks(v)
	return l
}

func (l *menuLink) addChecks(v *view) {
	l.add("warnings", int64(len(v.warnings)), "with a warning, of the checks on System")
	l.add("badge", v.failed, "failed, of the checks on System")
}

func (l *menuLink) add(class string, n int64, about string) {
	if n > 0 {
		l.Counts = append(l.Counts, menuCount{class, compact(n), printable.Count(n) + " " + about, about})
	}
}

// compact returns a number in at most four characters.
func compact(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprint(n)
	case n < 10_000:
		return fmt.Sprintf("%.1fk", float64(n)/1000)
	case n < 1_000_000:
		return fmt.Sprintf("%dk", n/1000)
	case n < 10_000_000:
		return fmt.Sprintf("%.1fM", float64(n)/1e6)
	}
	return fmt.Sprintf("%dM", n/1_000_000)
}
