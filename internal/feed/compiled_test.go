package feed_test

import (
	"testing"

	"github.com/taskledger/taskledger/internal/plantest"
)

// The statements of a page or poll have an estimated cost below that of JIT compilation, even with a long
// history.
func TestNoPlanIsCompiled(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	plantest.Enlarge(t, f.owner)
	fill(f, f.owner, 1, 3_000)
	pool := plantest.Pool(t, f.owner, "")
	missed := 0
	opened := f.open(pool, auditing(&missed))
	late := f.begin()
	f.enqueue(late, "late")
	if n := len(f.drainAudited(opened)); n != 3_000 {
		t.Errorf("%d events were delivered", n)
	}
	f.commit(late)
	if ids := f.drainAudited(opened); len(ids) != 1 || missed != 0 {
		t.Errorf("%q were delivered late, %d missed", ids, missed)
	}
}
