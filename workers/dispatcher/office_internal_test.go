package dispatcher

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/lease"
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

// A hostile worker takes tasks, and then writes an invalid key into its lease. The session of its earlier key ends, so
// others get these tasks.
func TestAnInvalidKeyEndsTheSession(t *testing.T) {
	t.Parallel()
	identity, err := dispatch.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	o := newOffice(Config{Logger: log}, nil, identity, lease.DispatcherClaim{},
		lease.DispatcherTerm{Incarnation: "i", Epoch: 1}, lease.Run{}, time.Now())
	defer o.limited.Close()
	rogue := lease.Session{Worker: "rogue", Key: identity.Public(), Kinds: []string{"k"}, Shards: ledger.AllShards}
	o.joinAll([]lease.Session{rogue}, nil)
	if n := len(o.machine.Workers()); n != 1 {
		t.Errorf("%d sessions with a valid key", n)
	}
	rogue.Key = make([]byte, len(rogue.Key)) // X25519 refuses it
	o.joinAll([]lease.Session{rogue}, nil)
	if n := len(o.machine.Workers()); n != 0 {
		t.Errorf("%d sessions with an invalid key", n)
	}
}
