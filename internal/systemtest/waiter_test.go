package systemtest_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// The users waiter, worker, operator and relay of docs/nats.conf receive outcomes. A waiter with another user finds
// them by its polls, and the login of a waiter needs the role subscriber alone.
func TestWaitersInNATS(t *testing.T) {
	g := newGuarded(t)
	g.startOn("relay", g.connect("relay"), newGuardedRelay)
	app := g.pool(ledgertest.App)
	for i, test := range []struct {
		user string
		poll time.Duration
	}{
		{user: "waiter", poll: time.Hour}, {user: "worker", poll: time.Hour}, {user: "operator", poll: time.Hour},
		{user: "relay", poll: time.Hour},
		{user: "mails", poll: 50 * time.Millisecond},
	} {
		nc := g.connect(test.user)
		w, err := outbox.NewWaiter(outbox.WaiterConfig{
			DB: g.pool("subscriber"), NATS: nc, PollEvery: test.poll,
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		id := ledger.BizID(fmt.Sprint(i))
		g.enqueue(parcel, id)
		ended := make(chan error, 1)
		go func() {
			_, err := parcel.Wait(t.Context(), w, id)
			ended <- err
		}()
		g.await("the subscriptions", func() bool { return nc.NumSubscriptions() >= len(stream.None.OutcomeSubjects()) })
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		request := ledger.AppendRequest{Key: parcel.Key(id), Expected: 1, Type: ledger.EventSucceeded}
		if _, err := ledger.Append(t.Context(), app, request); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%s: %v", test.user, err)
			}
		case <-time.After(patience):
			t.Fatalf("%s: the wait did not end within %s", test.user, patience)
		}
		if test.user != "mails" {
			g.await("the outcome as a message to "+test.user, func() bool { return nc.Stats().InMsgs > 0 })
		} else if n := nc.Stats().InMsgs; n != 0 {
			t.Errorf("the subscriber received %d messages", n)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, refused := range g.refused {
		if !strings.HasPrefix(refused, "mails: ") {
			t.Errorf("refused: %s", refused)
		}
	}
	if len(g.refused) != len(stream.None.OutcomeSubjects()) {
		t.Errorf("refused: %q", g.refused)
	}
}
