package projector

import (
	"context"
	_ "embed"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/verify_tags.sql
	verifyTagsSQL string
	//go:embed sql/verify_tag_count.sql
	verifyTagCountSQL string
)

// compareTags compares the tags of tasks, whose events are complete. It checks that the table contains each tag of the
// events; compareTagCount checks that it contains no others.
func (v *verifier) compareTags(ctx context.Context, events []ledger.Event) error {
	if !v.isTagged {
		return nil // they are being added, and no search uses the table
	}
	var rows tagRows
	var subjects []string
	for _, e := range events {
		if e.Version != 1 {
			continue
		}
		if _, err := (ledger.Task{}).Apply(e); err != nil {
			continue // the task is without a row
		}
		tags := tagsOf(e.Meta)
		rows.add(tags, e.Position)
		for _, tag := range tags {
			subjects = append(subjects, e.Key.String()+" tag "+tag)
		}
	}
	if len(subjects) == 0 {
		return nil
	}
	v.tags += int64(len(subjects))
	missing, err := v.tx.Query(ctx, verifyTagsSQL, rows.tags.String(), rows.positions.String())
	if err != nil {
		return err
	}
	indexes, err := pgx.CollectRows(missing, pgx.RowTo[int])
	for _, i := range indexes {
		v.report.Compare(subjects[i], "", "true")
	}
	return err
}

// compareTagCount compares the number of tags of all tasks.
func (v *verifier) compareTagCount(ctx context.Context) error {
	if !v.isTagged {
		return nil
	}
	var have int64
	_, err := pgquery.Row(ctx, v.tx, verifyTagCountSQL, nil, &have)
	v.report.Compare("number of tags", strconv.FormatInt(have, 10), strconv.FormatInt(v.tags, 10))
	return err
}
