package operator

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/dead.sql
	deadSQL string
	//go:embed sql/dead_page.sql
	deadPageSQL string
)

// DeadGroup is a kind's dead tasks whose errors share a fingerprint.
type DeadGroup struct {
	Kind        ledger.Kind `json:"kind"`
	Fingerprint string      `json:"fingerprint"` // see ledger.Fingerprint
	Tasks       int64       `json:"tasks"`
	Oldest      time.Time   `json:"oldest"` // when the first of them died
	Newest      time.Time   `json:"newest"`
	Error       string      `json:"error"`   // of the newest
	Example     ledger.Key  `json:"example"` // the newest

	// More is set by [FindDead] if the group has more tasks than it read: the other fields describe the tasks read.
	More bool `json:"more,omitempty"`
	// Hours is set by [FindDead]: how many of the tasks read died in each of 24 hours.
	Hours [24]int64 `json:"-"`
}

// ReadDead returns the dead tasks of a kind ("": of all kinds) in groups, the largest first. It reads all dead tasks
// in the projection; [FindDead] reads fewer. It never commits.
//
// Errors: [*ledger.InvalidError], [ledger.ErrNotMigrated].
func ReadDead(ctx context.Context, db ledger.DB, kind ledger.Kind) ([]DeadGroup, error) {
	if err := kind.ValidateStored(); err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, deadSQL, string(kind))
	if err != nil {
		return nil, pgerr.Explain("read dead tasks", err)
	}
	groups, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (g DeadGroup, err error) {
		err = row.Scan(g.columns()...)
		g.Example.Kind = g.Kind
		return g, err
	})
	if err != nil {
		return nil, pgerr.Explain("read dead tasks", err)
	}
	return groups, nil
}

// DeadSearch selects the groups that [FindDead] reads. The zero value selects the first page.
type DeadSearch struct {
	Kind             ledger.Kind // only groups of this kind; entries of other kinds are skipped. Default: all.
	AfterFingerprint string      // of the last group of the page before
	AfterKind        ledger.Kind // of the same group
	Groups           int         // maximum number of groups, 1 to 100. Default: 25.
	Tasks            int         // maximum number of tasks to read of each group, 1 to 10,000. Default: 2000.
	Since            time.Time   // beginning of the hours of [DeadGroup].Hours. Default: they are not counted.
}

func (s *DeadSearch) complete() error {
	for _, limit := range []struct {
		field           string
		n               *int
		most, otherwise int
	}{{"groups", &s.Groups, 100, 25}, {"tasks", &s.Tasks, 10_000, 2000}} {
		if *limit.n == 0 {
			*limit.n = limit.otherwise
		}
		if *limit.n < 1 || *limit.n > limit.most {
			return &ledger.InvalidError{Field: limit.field, Value: strconv.Itoa(*limit.n),
				Rule: fmt.Sprintf("must be between 1 and %d", limit.most)}
		}
	}
	if !isText(s.AfterFingerprint) {
		return &ledger.InvalidError{Field: "fingerprint", Value: s.AfterFingerprint, Rule: "must be UTF-8 without NUL"}
	}
	return errors.Join(s.Kind.ValidateStored(), s.AfterKind.ValidateStored())
}

// FindDead returns a page of the groups of dead tasks, by fingerprint and kind, and whether more groups follow. It
// reads no more of the projection than the limits allow, however many tasks are dead. It never commits.
//
// Errors: [*ledger.InvalidError], [ledger.ErrNotMigrated].
func FindDead(ctx context.Context, db ledger.DB, s DeadSearch) (groups []DeadGroup, hasMore bool, err error) {
	if err := s.complete(); err != nil {
		return nil, false, err
	}
	var since *string
	if !s.Since.IsZero() {
		since = new(pgquery.Time(s.Since))
	}
	rows, err := db.Query(ctx, deadPageSQL, s.AfterFingerprint, string(s.AfterKind), int64(s.Groups+1), int64(s.Tasks),
		string(s.Kind), since)
	if err != nil {
		return nil, false, pgerr.Explain("read dead tasks", err)
	}
	groups, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (g DeadGroup, err error) {
		var text string
		err = row.Scan(append(slices.Insert(g.columns(), 3, any(&g.More)), &text)...)
		if err != nil {
			return g, err
		}
		g.Example.Kind = g.Kind
		var hours map[int]int64
		err = json.Unmarshal([]byte(text), &hours)
		delete(hours, -1) // before
		for i, n := range hours {
			g.Hours[i] = n
		}
		return g, err
	})
	if err != nil {
		return nil, false, pgerr.Explain("read dead tasks", err)
	}
	if len(groups) > s.Groups {
		return groups[:s.Groups], true, nil
	}
	return groups, false, nil
}

// columns returns the destinations of the columns of dead.sql.
func (g *DeadGroup) columns() []any {
	return []any{
		(*string)(&g.Kind), &g.Fingerprint, &g.Tasks, pgquery.Micros(&g.Oldest), pgquery.Micros(&g.Newest), &g.Error,
		(*string)(&g.Example.BizID),
	}
}
