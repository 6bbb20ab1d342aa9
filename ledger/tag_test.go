package ledger_test

import (
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A tag that cannot be stored as it is given is refused, as a biz_id and an actor are.
func TestInvalidTags(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	for _, tag := range []string{"\xff", "a\x00b"} {
		o := &ledger.EnqueueOptions{Meta: ledger.Meta{Tags: []string{"fine", tag}}}
		_, err := ledger.Enqueue(t.Context(), pool, ledger.Key{Kind: "coupon.send", BizID: "1"}, nil, o)
		if invalid := wantErrorAs[*ledger.InvalidError](t, err); invalid.Field != "tags" || invalid.Value != tag {
			t.Errorf("%q: %v", tag, err)
		}
	}
}
