package reconciler

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A withheld kind was published up to its place only: where its shards have several, up to the oldest place of those
// that the reconciler looks after. Otherwise it would release tasks whose messages follow, or none of the kind.
func TestPublishedOfWithheldShards(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "relay")
	_, err := db.Exec(t.Context(), `
		insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, after_position, origin, mark)
		select 'relay', coalesce(max(n), 0) + 1, '90:90:', 9, '90', 0, 'here', '{"generation":1,"stream_created":"c",
		       "stream_seq":5,"withheld":{"kinds":{"whole":1,"split":0},"places":[{"seen":{"snapshot":"10:10:"}},
		       {"seen":{"snapshot":"20:20:"}}],"parts":{"split":[{"mask":12,"place":0},{"mask":-256,"place":1}]}}}'
		  from taskledger.cursor`)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		kind, mask, want string
	}{
		{kind: "other", mask: "-1", want: "90:90:"},
		{kind: "whole", mask: "-1", want: "20:20:"},
		{kind: "whole", mask: "1", want: "20:20:"},
		{kind: "split", mask: "-1", want: "10:10:"},
		{kind: "split", mask: "4", want: "10:10:"},
		{kind: "split", mask: "-9223372036854775808", want: "20:20:"},
		{kind: "split", mask: "3", want: "90:90:"},
	} {
		rows, err := db.Query(t.Context(), publishedSQL, "{7}", "{"+test.kind+"}", "{"+test.mask+"}", "c", int64(1))
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (seen string, err error) {
			err = row.Scan(nil, &seen, nil)
			return seen, err
		})
		if err != nil || got != test.want {
			t.Errorf("%s, shards %s: published is %s, want %s (%v)", test.kind, test.mask, got, test.want, err)
		}
	}
}
