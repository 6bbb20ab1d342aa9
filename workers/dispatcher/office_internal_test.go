package dispatcher

import (
	"context"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/dispatch"
	"github.com/taskledger/taskledger/workers/internal/local"
)

// A dispatcher sends nothing after its lease has ended, and no contents if its windows are late.
func TestLateDispatchers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name       string
		lease      time.Duration // until its end
		window     time.Duration // since it was opened
		tasks      int           // of the first message that arrives
		hasContent bool
	}{
		{name: "in time", lease: time.Hour, tasks: 1, hasContent: true},
		{name: "the last window is old", lease: time.Hour, window: time.Minute, tasks: 1},
		{name: "the lease has ended", lease: -time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			session := t.Name()
			box, remove := local.Workers.Open(session)
			defer remove()
			o := &office{
				peers:    map[string]*peer{session: {}},
				deadline: time.Now().Add(test.lease), viewed: time.Now().Add(-test.window),
			}
			o.send(dispatch.Offer{Session: session, Tasks: []dispatch.Task{
				{Key: ledger.Key{Kind: "k", BizID: "b"}, Content: []byte("content")},
			}})
			o.deadline = time.Now().Add(time.Hour)
			o.send(dispatch.Offer{Session: session})
			ctx, cancel := context.WithCancel(t.Context())
			box.Receive(ctx, func(offer dispatch.Offer) {
				if ctx.Err() != nil {
					return
				}
				cancel()
				if len(offer.Tasks) != test.tasks {
					t.Fatalf("%d tasks", len(offer.Tasks))
				}
				if test.tasks > 0 && (offer.Tasks[0].Content != nil) != test.hasContent {
					t.Errorf("content %q", offer.Tasks[0].Content)
				}
			})
		})
	}
}
