package ledger_test

import (
	"testing"

	"github.com/taskledger/taskledger/internal/eventrows"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A scanned event of a kind that the event before it has, by the same author, allocates its biz_id and no more; one
// with args allocates them, too.
func TestScanEventsAllocations(t *testing.T) {
	db := ledgertest.Pool(t)
	const query = `select g, 1, 0, 7, case g % 2 when 0 then 'enqueued' else 'succeeded' end, g * 1000000,
		'coupon.send', 'order-' || g, 'shop', 'shop_login', 1, 2, 'tenant-7', 0, '',
		case when $1 then '{"cents":5}' end, null::text
		from generate_series(1::bigint, $2) g`
	count := func(hasArgs bool, n int) float64 {
		return testing.AllocsPerRun(5, func() {
			rows, err := db.Query(t.Context(), query, hasArgs, n)
			if err != nil {
				t.Fatal(err)
			}
			events := 0
			for e, err := range eventrows.Scan(rows) {
				if err != nil || e.Kind != "coupon.send" || e.Login != "shop_login" {
					t.Fatalf("%+v, %v", e, err)
				}
				events++
			}
			if events != n {
				t.Fatalf("%d events, want %d", events, n)
			}
		})
	}
	for hasArgs, want := range map[bool]float64{false: 1, true: 2} {
		if got := (count(hasArgs, 1100) - count(hasArgs, 100)) / 1000; got < want-0.1 || got > want+0.1 {
			t.Errorf("args: %t: %v allocations an event, want %v", hasArgs, got, want)
		}
	}
}
