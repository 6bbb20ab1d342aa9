package health_test

import (
	"fmt"
	"testing"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/projection"
)

// The number of illegal events is exact below its cap. At the cap the condition has neither a time nor a last event:
// these would be those of a part of the events.
func TestIllegalEventsOverTheCap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, test := range []struct {
		events  int
		text    string
		isSince bool
	}{
		{events: projection.MaxIllegal - 1, text: "illegal events: 9,999; the last one: any reason", isSince: true},
		{events: projection.MaxIllegal + 1, text: "illegal events: 10,000+; one of them: any reason"},
	} {
		b.exec(fmt.Sprintf(`
			insert into taskledger.illegal_event (kind, biz_id, version, reason)
			select 'coupon.send', g::text, 2, 'any reason' from generate_series(1, %d) g
			on conflict do nothing`, test.events))
		r := b.read(health.Config{Only: []health.Name{health.EventsIllegal}})
		if len(r.Degraded) != 1 || r.Degraded[0].Text != test.text || r.Degraded[0].Since.IsZero() == test.isSince {
			t.Errorf("%d events: %+v, want %q", test.events, r.Degraded, test.text)
		}
	}
}
