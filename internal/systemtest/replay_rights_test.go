package systemtest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/replay"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// With the rights of docs/nats.conf the operator publishes a replay on the stream of the administrator, goes on with
// it, and may not publish on the subjects of workers, nor change the stream of the replay.
func TestOperatorReplaysInNATS(t *testing.T) {
	for name, direct := range map[string]bool{"direct": true, "indirect": false} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t)
			for i := range 2 {
				k := ledger.Key{Kind: parcel.Name(), BizID: ledger.BizID(fmt.Sprint(i))}
				ledgertest.Enqueue(t, g.db, k, `{"n":1}`)
			}
			admin, err := jetstream.New(g.connect("admin"))
			if err != nil {
				t.Fatal(err)
			}
			stream, err := admin.CreateStream(t.Context(), jetstream.StreamConfig{
				Name: "REPLAY", Subjects: []string{"replay.>"}, AllowDirect: direct,
			})
			if err != nil {
				t.Fatal(err)
			}
			nc := g.connect("operator")
			js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Second))
			if err != nil {
				t.Fatal(err)
			}
			to, err := ledger.MomentAt(t.Context(), g.db, time.Now().Add(-time.Microsecond))
			if err != nil {
				t.Fatal(err)
			}
			c := replay.Config{
				DB: g.pool("operator"), JetStream: js, Range: ledger.Range{To: to},
				Subject: "replay.parcels", Actor: "test",
			}
			for _, earlier := range []int64{0, 2} {
				done, err := replay.Run(t.Context(), c)
				if err != nil || done.Events != 2 || done.Earlier != earlier {
					t.Fatalf("%+v, %v", done, err)
				}
			}
			info, err := stream.Info(t.Context())
			if err != nil || info.State.Msgs != 3 {
				t.Fatalf("%+v, %v", info, err)
			}
			c.Subject = "replay.others"
			c.JetStream, err = jetstream.New(g.connect("worker"), jetstream.WithDefaultTimeout(time.Second))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := replay.Run(t.Context(), c); !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("as worker: %v", err)
			}
			if err := nc.Publish("ledger.0.enqueued.parcel.send", nil); err != nil {
				t.Fatal(err)
			}
			if err := js.DeleteStream(t.Context(), "REPLAY"); err == nil {
				t.Error("the operator could delete the stream of the replay")
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			if len(g.refused) != 4 { // a worker has no inbox either
				t.Errorf("refused: %q", g.refused)
			}
		})
	}
}
