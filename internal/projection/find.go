package projection

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/find.sql
	findSQL string
	//go:embed sql/find_aside.sql
	findAsideSQL string
)

// Search selects tasks for [FindTasks].
type Search struct {
	Kind   ledger.Kind  // Default: all kinds.
	Prefix string       // the beginning of the biz_id. Default: all.
	State  ledger.State // Default: all states.
	After  ledger.Key   // continues after an earlier call: its result next. Default: the first task.
	Limit  int          // Default: 50. At most [MaxList].
}

// MaxList is the largest limit of a list of tasks.
const MaxList = 1000

// maxFindPages is the maximum number of pages of MaxList tasks that one call of FindTasks reads.
const maxFindPages = 5

// FindTasks returns tasks of the projection by kind and biz_id. It also returns next, the Search.After with which to
// continue, or the zero key at the end. A call reads a bounded number of tasks, so it may return fewer than the limit,
// even an empty slice, although there are more. The Position of each is 0. Tasks that are not projected yet are left
// out. The cost grows with the number of kinds, not of tasks. It never commits.
//
// Errors: [*ledger.InvalidError], [ledger.ErrNotMigrated].
func FindTasks(ctx context.Context, db ledger.DB, s Search) (found []ledger.ListedTask, next ledger.Key, err error) {
	if err := s.validate(); err != nil {
		return nil, next, fmt.Errorf("find tasks: %w", err)
	}
	if s.Limit == 0 {
		s.Limit = 50
	}
	read := MaxList
	if s.State == "" || s.State.Exceptional() {
		read = s.Limit
	}
	for range maxFindPages {
		page, walked, err := s.read(ctx, db, read)
		if err != nil {
			return nil, next, pgerr.Explain("find tasks", err)
		}
		for _, t := range page {
			s.After = t.Key
			if s.State == "" || t.State == s.State {
				found = append(found, t)
			}
			if len(found) == s.Limit {
				return found, s.After, AddOrderKeys(ctx, db, found)
			}
		}
		if walked < read {
			return found, ledger.Key{}, AddOrderKeys(ctx, db, found)
		}
	}
	return found, s.After, AddOrderKeys(ctx, db, found)
}

func (s Search) validate() error {
	if err := CheckList(s.Kind, s.State, s.Limit); err != nil {
		return err
	}
	for _, text := range []string{s.Prefix, string(s.After.Kind), string(s.After.BizID)} {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) || len(text) > 1024 {
			return &ledger.InvalidError{Field: "prefix", Value: text,
				Rule: "must be UTF-8 without NUL, at most 1024 bytes"}
		}
	}
	return nil
}

// read reads the next tasks, and returns how many. For a state that is not exceptional, it reads tasks in all states:
// the page has those in the state, and the last one in any state.
func (s Search) read(ctx context.Context, db ledger.DB, limit int) (page []ledger.ListedTask, walked int, err error) {
	sql := findSQL
	if s.State != "" && s.State.Exceptional() {
		sql = findAsideSQL
	}
	rows, err := db.Query(ctx, sql, string(s.Kind), s.Prefix, string(s.After.Kind), string(s.After.BizID), int64(limit),
		string(s.State))
	if err != nil {
		return nil, 0, err
	}
	page, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t ledger.ListedTask, err error) {
		err = row.Scan((*string)(&t.Kind), (*string)(&t.BizID), (*int)(&t.Shard), (*string)(&t.State),
			(*int32)(&t.Version), (*int32)(&t.Attempt), &t.Failures, pgquery.Micros(&t.EnqueuedAt),
			pgquery.Micros(&t.UpdatedAt), &t.Error, &t.Fingerprint, pgquery.Micros(&t.DueAt),
			(*int)(&t.Priority), &t.Partition, &walked)
		return t, err
	})
	return page, walked, err
}

// CheckList returns an [*ledger.InvalidError] if a list of tasks cannot have this kind, state or limit. The zero values
// select all kinds, all states and the default limit.
func CheckList(k ledger.Kind, s ledger.State, limit int) error {
	if err := k.ValidateStored(); err != nil {
		return err
	}
	if s != "" && !slices.Contains(States(), string(s)) {
		return &ledger.InvalidError{Field: "state", Value: string(s),
			Rule: "must be one of " + strings.Join(States(), ", ")}
	}
	if limit < 0 || limit > MaxList {
		return &ledger.InvalidError{Field: "limit", Value: fmt.Sprint(limit),
			Rule: fmt.Sprintf("must be between 1 and %d", MaxList)}
	}
	return nil
}

// States returns all states of a task, sorted.
func States() (all []string) {
	for _, t := range ledger.Transitions() {
		all = append(all, string(t.To))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
