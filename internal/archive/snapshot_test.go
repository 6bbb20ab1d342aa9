package archive

import (
	"testing"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A snapshot sees the transactions that PostgreSQL's function sees.
func TestSnapshotSees(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t)
	for _, text := range []string{"3:3:", "10:10:", "10:20:10,12,19", "10:20:10"} {
		s, err := parseSnapshot(text)
		if err != nil {
			t.Fatal(err)
		}
		for xid := int64(3); xid < 25; xid++ {
			var want bool
			const sql = "select pg_visible_in_snapshot($1::bigint::text::xid8, $2::text::pg_snapshot)"
			err := db.QueryRow(t.Context(), sql, xid, text).Scan(&want)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.sees(xid); got != want {
				t.Errorf("%s sees %d: %v, want %v", text, xid, got, want)
			}
		}
	}
	for _, text := range []string{"", "3", "3:x:", "3:4:y"} {
		if s, err := parseSnapshot(text); err == nil {
			t.Errorf("%q: %+v", text, s)
		}
	}
}
