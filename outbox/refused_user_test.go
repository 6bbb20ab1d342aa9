package outbox_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// A relay that has published nothing connects to NATS as a user that may do nothing there. Within seconds the status
// has what the server refuses and the cure, and since when.
func TestRelayWithTheWrongUser(t *testing.T) {
	t.Parallel()
	for _, may := range []string{"$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.LEDGER"} {
		t.Run(may, func(t *testing.T) {
			t.Parallel()
			b := &bundle{t: t, pool: ledgertest.Pool(t, ledgertest.App, "relay", "operator")}
			server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir(), Accounts: fmt.Sprintf(`
				accounts { LEDGER { jetstream: enabled, users: [
					{user: few, password: pw, permissions: {publish: [%q], subscribe: ["_INBOX.>"]}}]}}`, may)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := server.Close(); err != nil {
					t.Error(err)
				}
			})
			if b.nc, err = outbox.Connect("nats://few:pw@" + server.Host()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(b.nc.Close)
			b.relay()
			b.enqueue("coupon.send", "order-", 1)
			var since time.Time
			began := time.Now()
			b.await("the note of the relay has the cure", func() bool {
				s := b.note()
				since = s.NoteSince
				return strings.Contains(s.Note, "Permissions Violation") && strings.Contains(s.Note, "the user relay")
			})
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("the note came after %s", took)
			}
			time.Sleep(3 * time.Second)
			if s := b.note(); s.Note == "" || !s.NoteSince.Equal(since) {
				t.Errorf("the note %q holds since %s, want since %s", s.Note, s.NoteSince, since)
			}
		})
	}
}

// note returns the state of the relay's lease.
func (b *bundle) note() relays.LeaseStatus {
	b.t.Helper()
	s, err := relays.ReadStatus(b.ctx(), b.pool, nil, outbox.StreamConfig{})
	if err != nil {
		b.t.Fatal(err)
	}
	if s.Relay == nil {
		return relays.LeaseStatus{}
	}
	return *s.Relay
}
