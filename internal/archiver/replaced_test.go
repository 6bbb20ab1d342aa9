package archiver_test

import (
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A key that was archived and is enqueued again is not replaced.
func TestDuplicateOfArchivedTaskIsNotReplaced(t *testing.T) {
	t.Parallel()
	for _, ifExists := range []ledger.IfExists{ledger.IfExistsReplace, ledger.IfExistsFollow, ledger.IfExistsRerun} {
		t.Run(string(ifExists), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.finish("1")
			f.archive()
			for range 3 {
				if _, err := ledger.Enqueue(t.Context(), f.DB, key("1"), []byte(`{"n":1}`),
					&ledger.EnqueueOptions{IfExists: ifExists}); err != nil {
					t.Fatal(err)
				}
			}
			if n := claims(t, ledgertest.As(t, f.DB, "worker"), "1"); n != 0 {
				t.Errorf("an archived key runs again: %s", f.events("1"))
			}
			f.want("events", f.events("1"), "1 enqueued\n4 discarded")
		})
	}
}
