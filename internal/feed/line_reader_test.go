package feed_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The reader of the lines begins at the present while no task has stood in a line, so that a backlog without order keys
// costs it nothing. It still reads each later event, also of transactions that were open then.
func TestLineReaderBeginsAtThePresent(t *testing.T) {
	t.Parallel()
	for _, inLine := range []bool{false, true} {
		t.Run(fmt.Sprint(inLine), func(t *testing.T) {
			t.Parallel()
			db := ledgertest.Pool(t, ledgertest.App, "relay")
			ledgertest.Enqueue(t, db, ledger.Key{Kind: "k", BizID: "before"}, "")
			want := []string{"open", "after"}
			if inLine {
				o := &ledger.EnqueueOptions{OrderKey: "customer/17"}
				key := ledger.Key{Kind: "k", BizID: "in-line"}
				if _, err := ledger.Enqueue(t.Context(), db, key, nil, o); err != nil {
					t.Fatal(err)
				}
				want = []string{"before", "in-line", "open", "after"}
			}
			tx, err := db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ledgertest.Enqueue(t, tx, ledger.Key{Kind: "k", BizID: "open"}, "")
			reader, err := feed.Open(t.Context(), db, feed.LineReader, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			ledgertest.Enqueue(t, db, ledger.Key{Kind: "k", BizID: "after"}, "")
			var got []string
			for len(got) < len(want) {
				page, err := reader.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range page.Events {
					got = append(got, string(e.Key.BizID))
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("the reader got %q, want %q", got, want)
			}
		})
	}
}
