package ledger_test

import (
	"strconv"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A producer inserts a task whose finish_by is not a time: workers in SQL treat it as none, as those in Go do, and
// claim the other tasks of the kind too.
func TestMalformedDeadlines(t *testing.T) {
	t.Parallel()
	app := ledgertest.Pool(t)
	db, producer := sqlWorker(t, app), ledgertest.As(t, app, "producer")
	for i, value := range []string{
		`"garbage"`, `"2020-13-45T00:00:00Z"`, `"infinity"`, `"2020-01-01"`, `5`, `null`, `{}`, `"\u0000"`, `""`,
	} {
		id := strconv.Itoa(i)
		k := ledger.Key{Kind: "mail", BizID: ledger.BizID(id)}
		call(t, producer, insert(
			`'mail', '`+id+`', 1, 0, taskledger.shard_of('`+id+`'), 'enqueued', 'a', null, '{"finish_by":`+value+`}'`))
		a, ok := claim(t, db, k)
		if !ok {
			t.Errorf("finish_by %s: the task is not claimed", value)
			continue
		}
		version := strconv.Itoa(a.version)
		call(t, db, "select taskledger.finish($1::text, $2::text, $3::text::integer)", "mail", id, version)
	}
	past := ledger.Key{Kind: "mail", BizID: "past"}
	call(t, producer, insert(`'mail', 'past', 1, 0, taskledger.shard_of('past'), 'enqueued', 'a', null,
		'{"finish_by":"2020-01-01T00:00:00.5+02:00"}'`))
	if _, ok := claim(t, db, past); ok {
		t.Error("a task is claimed after its deadline")
	}
}
