package ledger

import (
	"context"
	_ "embed"
	"slices"
	"strconv"
	"time"
)

var (
	//go:embed sql/audit.sql
	auditSQL string
	//go:embed sql/events_at.sql
	eventsAtSQL string
)

// auditor is the belt to the braces: now and then it reads the last windows again by their
// plain definition and compares. What it finds missing was lost by a defect of ours; it is
// delivered late, and said.
type auditor struct {
	every time.Duration
	due   time.Time
	from  string     // snapshot at which the windows under audit began
	read  []Position // what was read in them
	blind bool       // the window being read was begun by an earlier reader: its first pages are not known
}

// maxAudited bounds the cost of an audit: busier stretches are let go, quieter ones follow.
const maxAudited = 20_000

// note adds a page that was read from windows after seen.
func (a *auditor) note(seen edge, events []Event) {
	if a.blind {
		return
	}
	if a.from == "" {
		a.from = seen.snapshot
	}
	if len(a.read) > maxAudited {
		return
	}
	for _, e := range events {
		a.read = append(a.read, e.Position)
	}
}

// missed returns the events between the windows' begin and until that were not read. It is
// called between windows, and does something only when an audit is due.
func (a *auditor) missed(ctx context.Context, db DB, until edge, now time.Time) ([]Event, error) {
	if a.from == "" || now.Before(a.due) {
		return nil, nil
	}
	from, read := a.from, a.read
	a.due, a.from, a.read = now.Add(a.every), "", a.read[:0]
	if len(read) > maxAudited {
		return nil, nil
	}
	rows, err := db.Query(ctx, auditSQL, from, until.snapshot)
	if err != nil {
		return nil, explain("audit feed", err)
	}
	defer rows.Close()
	slices.Sort(read)
	var missing textArray
	for rows.Next() {
		var position int64
		if err := rows.Scan(&position); err != nil {
			return nil, explain("audit feed", err)
		}
		if _, found := slices.BinarySearch(read, Position(position)); !found {
			missing.add(strconv.FormatInt(position, 10))
		}
	}
	if err := rows.Err(); err != nil || missing.b.Len() == 0 {
		return nil, explain("audit feed", err)
	}
	late, err := db.Query(ctx, eventsAtSQL, missing.String())
	if err != nil {
		return nil, explain("audit feed", err)
	}
	events, err := scanEvents(late, nil)
	return events, explain("audit feed", err)
}
