package projector

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/rebuild"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/tags_add.sql
	tagsAddSQL string
	//go:embed sql/tags_history.sql
	tagsHistorySQL string
	//go:embed sql/tags_whole.sql
	tagsWholeSQL string
)

const (
	// maxTag is the length in bytes of the longest tag by which tasks are found.
	maxTag = 255
	// maxTags is the number of tags of one task by which it is found: the first ones of its meta.
	maxTags = 100
)

// tagsOf returns the tags by which a task is found, each once, by the meta of its first event.
func tagsOf(meta json.RawMessage) []string {
	// Most metas contain none: saves decoding. The name of a member may be escaped.
	if !bytes.Contains(meta, []byte(`"tags"`)) && !bytes.Contains(meta, []byte(`\u`)) {
		return nil
	}
	var members map[string]json.RawMessage
	var all []string
	if json.Unmarshal(meta, &members) != nil || json.Unmarshal(members["tags"], &all) != nil {
		return nil // an invalid meta must not stop the projection
	}
	found := make([]string, 0, min(len(all), maxTags))
	for _, tag := range all {
		tag = storedTag(tag)
		if len(found) < maxTags && tag != "" && len(tag) <= maxTag && !slices.Contains(found, tag) {
			found = append(found, tag)
		}
	}
	return found
}

// storedTag returns a tag as PostgreSQL stores it: without NUL, as in pgarray.
func storedTag(tag string) string { return strings.ReplaceAll(tag, "\x00", "\uFFFD") }

// tagRows are rows of taskledger.task_tag.
type tagRows struct{ tags, positions pgarray.Builder }

func (r *tagRows) add(tags []string, position ledger.Position) {
	for _, tag := range tags {
		r.tags.Add(tag)
		r.positions.AddInt(int64(position))
	}
}

// write adds the rows by tags_add.sql for its table.
func (r *tagRows) write(ctx context.Context, tx pgx.Tx, sql string) error {
	if r.tags.IsEmpty() {
		return nil
	}
	_, err := tx.Exec(ctx, sql, r.args()...)
	return pgerr.Explain("add tags", err)
}

func (r *tagRows) args() []any { return []any{r.tags.String(), r.positions.String()} }

// tagHistory is the progress of adding the tags of earlier tasks: tasks that a projector of an older version has
// projected.
type tagHistory struct {
	After ledger.Position `json:"after"` // the tags up to here are added
	Until ledger.Position `json:"until"` // the last position when this began
}

func (h tagHistory) isWhole() bool { return h.After >= h.Until }

// tagPage is a page of the history of tags: the rows to be added, and the place after them.
type tagPage struct {
	rows tagRows
	at   tagHistory
}

var tagHistoryPage = 10_000 // events

// tagPagesIdle is the number of pages that an idle projector reads at a time. Events wait meanwhile.
const tagPagesIdle = 20

// openTagHistory returns the history of tags at the place in the mark of a cursor. A mark of an older version lacks it,
// so the history begins again.
func openTagHistory(ctx context.Context, db ledger.DB, at feed.Cursor) (h tagHistory, err error) {
	var m followerMark
	if len(at.Mark) > 0 {
		if err := json.Unmarshal(at.Mark, &m); err != nil {
			return h, &ledger.CorruptError{What: "mark of the projector's cursor", Err: err}
		}
	}
	isNew := len(at.Mark) == 0 && at.Place() == feed.Place{Window: feed.Window{Seen: feed.Beginning()}}
	switch {
	case m.Tagged || isNew:
		return h, nil
	case m.Tagging != nil:
		return *m.Tagging, nil
	}
	last, err := rebuild.LastPosition(ctx, db)
	h.Until = ledger.Position(last)
	return h, pgerr.Explain("read tags", err)
}

// next returns the next page, which is empty at the end of the history.
func (h tagHistory) next(ctx context.Context, db ledger.DB) (*tagPage, error) {
	page := &tagPage{at: h}
	if h.isWhole() {
		return page, nil
	}
	rows, err := db.Query(ctx, tagsHistorySQL, int64(h.After), int64(h.Until), int64(tagHistoryPage))
	if err != nil {
		return page, pgerr.Explain("read tags", err)
	}
	defer rows.Close()
	var events int
	var last int64
	for rows.Next() {
		var position *int64
		var meta *string
		if err := rows.Scan(&events, &last, &position, &meta); err != nil {
			return page, pgerr.Explain("read tags", err)
		}
		if position != nil {
			page.rows.add(tagsOf(json.RawMessage(*meta)), ledger.Position(*position))
		}
	}
	if page.at.After = ledger.Position(last); events < tagHistoryPage {
		page.at.After = h.Until
	}
	return page, pgerr.Explain("read tags", rows.Err())
}

// tagsAreWhole reports whether tasks are found by all of their tags.
func tagsAreWhole(ctx context.Context, db ledger.DB) (isWhole bool, err error) {
	_, err = pgquery.Row(ctx, db, tagsWholeSQL, []any{feed.ProjectorReader}, &isWhole)
	return isWhole, pgerr.Explain("read tags", err)
}
