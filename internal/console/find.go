package console

import (
	"context"
	"html/template"
	"net/http"
	"strings"

	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/ledger"
)

const (
	// maxHits is the number of tasks, and of kinds, that a search finds.
	maxHits = 8
	// maxFind is the maximum number of bytes of a search.
	maxFind = 512
)

// findData is the content of the page on which a task, a kind or a page is found. The script shows it as a palette.
type findData struct {
	Text string
	Hits []hit
}

// hit is a thing that was found.
type hit struct {
	Path         template.URL
	Title, About string
}

// showFind finds pages and kinds whose names contain a text, and tasks: one by its key, and others whose
// biz_id begins with it.
func (h *Handler) showFind(ctx context.Context, r *http.Request, v *view) error {
	text := strings.TrimSpace(r.URL.Query().Get("q"))
	if len(text) > maxFind {
		return invalid("a search must have at most %d bytes", maxFind)
	}
	d := &findData{Text: text}
	v.Data = d
	kind, id, isKey := strings.Cut(text, "/")
	if isKey {
		key := ledger.Key{Kind: ledger.Kind(kind), BizID: ledger.BizID(id)}
		if key.ValidateStored() == nil && v.Caller.MayUse(key.Kind) {
			found, err := ledger.States(ctx, h.config.DB, []ledger.Key{key})
			if err != nil {
				return err
			}
			if state := found[key]; state != "" {
				d.add(taskPath(key), key.String(), string(state))
			}
		}
	}
	isMatch := func(name string) bool { return strings.Contains(strings.ToLower(name), strings.ToLower(text)) }
	for _, p := range pages {
		if p.isListed() && isMatch(p.Title) && (p.name != "system" || !v.Caller.IsLimited()) {
			d.add(template.URL(p.name), p.Title, "page") //nolint:gosec // a constant
		}
	}
	if text == "" {
		return nil
	}
	kinds, err := h.kinds(ctx, v.Caller)
	if err != nil {
		return err
	}
	n := 0
	for _, k := range kinds {
		if n < maxHits && isMatch(string(k)) {
			d.add(kindPath(k), string(k), "kind")
			n++
		}
	}
	search := projection.Search{Prefix: text, Limit: maxHits}
	if isKey {
		search.Kind, search.Prefix = ledger.Kind(kind), id
		if search.Kind.ValidateStored() != nil || !v.Caller.MayUse(search.Kind) {
			return nil
		}
	}
	tasks, _, err := h.find(ctx, v.Caller, search)
	if err != nil {
		return err
	}
	for _, t := range tasks {
		if t.Key.String() != text && v.Caller.MayUse(t.Kind) {
			d.add(taskPath(t.Key), t.Key.String(), string(t.State))
		}
	}
	return nil
}

func (d *findData) add(path template.URL, title, about string) {
	d.Hits = append(d.Hits, hit{path, title, about})
}
