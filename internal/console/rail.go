package console

import (
	"context"
	"fmt"
	"net/http"

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

// readRail returns the numbers of tasks in the menu, of the kinds that the caller may read.
func (h *Handler) readRail(ctx context.Context, v *view) (stateCounts, error) {
	counts, err := h.pageCounts(ctx, v)
	sums := stateCounts{}
	for _, n := range counts {
		sums.add(n)
	}
	return sums, err
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
			l.add("badge", int64(v.Degraded), "conditions that hold")
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
	l.add("warnings", v.warnings, "with a warning, of the checks on System")
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
