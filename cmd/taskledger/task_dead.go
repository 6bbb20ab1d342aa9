package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
)

const (
	// deadPage is how many groups of dead tasks are read at once.
	deadPage = 100
	// deadTasks is how many tasks are read of each group.
	deadTasks = 10_000
)

// deadName returns the name of a group for --after. A forged kind may contain a slash.
func deadName(g operator.DeadGroup) string {
	return g.Fingerprint + "/" + url.PathEscape(string(g.Kind))
}

// deadAfter returns a function that reads the groups after the group with a name.
func deadAfter(kind ledger.Kind) func(context.Context, ledger.DB, string, int) ([]operator.DeadGroup, error) {
	return func(ctx context.Context, db ledger.DB, after string, limit int) (all []operator.DeadGroup, err error) {
		search := operator.DeadSearch{Kind: kind, Tasks: deadTasks}
		if slash := strings.LastIndexByte(after, '/'); after != "" {
			last, err := url.PathUnescape(after[slash+1:])
			if err != nil || slash < 0 {
				return nil, usagef("--after must be FINGERPRINT/KIND, got %q", after)
			}
			search.AfterFingerprint, search.AfterKind = after[:slash], ledger.Kind(last)
		}
		for hasMore := true; hasMore && len(all) < limit; {
			search.Groups = min(limit-len(all), deadPage)
			var page []operator.DeadGroup
			if page, hasMore, err = operator.FindDead(ctx, db, search); err != nil {
				return nil, err
			}
			if all = append(all, page...); len(page) > 0 {
				last := page[len(page)-1]
				search.AfterFingerprint, search.AfterKind = last.Fingerprint, last.Kind
			}
		}
		return all, nil
	}
}

func showDead(ctx context.Context, a *app, pool *pgxpool.Pool, f showFlags) error {
	groups, next, err := readPage(ctx, pool, f.pageFlags, deadAfter(ledger.Kind(f.kind)), deadName)
	if err != nil {
		return err
	}
	slices.SortStableFunc(groups, func(a, b operator.DeadGroup) int { return cmp.Compare(b.Tasks, a.Tasks) })
	list := struct {
		Groups []operator.DeadGroup `json:"groups"`
		Next   string               `json:"next,omitempty"`
	}{groups, next}
	if err := printList(a, list, groups, func(w io.Writer) {
		if len(groups) > 0 {
			renderDead(w, groups)
		}
	}); err != nil {
		return err
	}
	if len(groups) == 0 {
		fmt.Fprintln(a.stderr, "no dead tasks")
	}
	noteNext(a, next)
	return noteLag(ctx, a, pool)
}

func renderDead(w io.Writer, groups []operator.DeadGroup) {
	t := newTable([]any{"kind", "fingerprint", "tasks", "oldest", "newest", "for example", "error"}, 3, 4, 5)
	for _, g := range groups {
		tasks := count(g.Tasks)
		if g.More {
			tasks += "+"
		}
		t.AppendRow(table.Row{plain(string(g.Kind)), plain(g.Fingerprint), tasks, ago(g.Oldest), ago(g.Newest),
			shorten(string(g.Example.BizID), 40), shorten(g.Error, 60)})
	}
	renderTable(w, t)
}
