package outbox

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The view relay_mark, which other packages read, has the fields of the mark.
func TestViewOfTheMark(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, ledgertest.Owner)
	created := time.Date(2026, 11, 28, 14, 0, 0, 123456789, time.UTC)
	made := mark{Generation: 7, Created: created.Format(time.RFC3339Nano), Seq: 42, Tail: 40, Server: "run"}
	for name, mark := range map[string]*mark{"without a session": nil, "published": &made} {
		var text *string
		if mark != nil {
			encoded := string(mark.encode())
			text = &encoded
		}
		_, err := db.Exec(t.Context(), `
			insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, after_position, origin, mark)
			select $1, coalesce(max(n), 0) + 1, '10:10:', 3, '10', 5, 'here', $2::text::json
			  from taskledger.cursor`, reader, text)
		if err != nil {
			t.Fatal(err)
		}
		var generation, seq, tail *int64
		var stream, server *string
		var top int64
		row := db.QueryRow(t.Context(), `
			select generation, stream_created, stream_seq, stream_tail, server, top
			  from taskledger_internal.relay_mark order by n desc limit 1`)
		err = row.Scan(&generation, &stream, &seq, &tail, &server, &top)
		if err != nil {
			t.Fatal(err)
		}
		if top != 5 {
			t.Errorf("%s: top %d", name, top)
		}
		if mark == nil {
			if generation != nil || stream != nil || seq != nil || tail != nil || server != nil {
				t.Errorf("%s: the fields are not null", name)
			}
			continue
		}
		if generation == nil || *generation != 7 || seq == nil || *seq != 42 || tail == nil || *tail != 40 ||
			stream == nil || *stream != made.Created || server == nil || *server != "run" {
			t.Errorf("%s: generation %v, stream_created %v, stream_seq %v", name, generation, stream, seq)
		}
	}
}
