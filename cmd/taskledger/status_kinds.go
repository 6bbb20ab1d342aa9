package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/taskledger/taskledger/health/alarm"
	"github.com/taskledger/taskledger/workers"
)

// unhandledLate is how long a task may wait for a worker of its kind before that counts as a reason
// to look: workers are being replaced all the time.
const unhandledLate = 30 * time.Second

// maxNamed is how many kinds a sentence names.
const maxNamed = 5

// addKinds tells of kinds whose tasks nobody begins.
func (s *status) addKinds(ctx context.Context, pool *pgxpool.Pool) error {
	unhandled, err := workers.Unhandled(ctx, pool)
	if err != nil {
		return err
	}
	paused, err := workers.PausedKinds(ctx, pool)
	if err != nil {
		return err
	}
	s.Unhandled, s.Paused = []workers.UnhandledKind{}, append([]workers.PausedKind{}, paused...)
	var late []string
	for _, u := range unhandled {
		if u.Kind == alarm.Kind { // delivered by who watches, and told of where that fails
			continue
		}
		s.Unhandled = append(s.Unhandled, u)
		if u.Late(unhandledLate) {
			late = append(late, string(u.Kind))
		}
	}
	if len(late) > 0 {
		s.Degraded = append(s.Degraded, "tasks wait and no worker handles their kind: "+nameSome(late))
	}
	return nil
}

// nameSome lists some names, and how many more there are.
func nameSome(names []string) string {
	text := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := len(names) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %s more", count(int64(more)))
	}
	return text
}

func (s status) pausedKinds() string {
	names := make([]string, len(s.Paused))
	for i, k := range s.Paused {
		names[i] = plain(string(k.Kind))
	}
	return nameSome(names)
}

func (s status) renderUnhandled(w io.Writer) {
	if len(s.Unhandled) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := newTable([]any{"kind without worker", "waiting", "oldest"}, 2)
	for _, u := range s.Unhandled {
		oldest := "not looked for"
		if u.OldestMS != nil {
			oldest = age(time.Duration(*u.OldestMS) * time.Millisecond)
		}
		t.AppendRow(table.Row{plain(string(u.Kind)), count(u.Waiting), oldest})
	}
	renderTable(w, t)
}
