package health_test

import (
	"slices"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/probe"
	"github.com/taskledger/taskledger/internal/relays"
)

// A condition holds at most two seconds after its cause, also in a result that /readyz keeps, if reading the status
// takes no longer than half a second.
func TestDelaysOfConditions(t *testing.T) {
	t.Parallel()
	const most, reading = 2 * time.Second, 500 * time.Millisecond
	lag, _ := health.Define(health.RelayLag)
	for _, delay := range []struct {
		name string
		of   time.Duration
	}{
		{name: "relay_lag", of: lag.Threshold},
		{name: "relay_stopped", of: relays.GoneAfter},
	} {
		if sum := delay.of + probe.MaxAge + reading; sum > most {
			t.Errorf("%s: %s after its cause, want %s", delay.name, sum, most)
		}
	}
}

// The process of the relay is killed: its connection ends, and its lease lasts. No relay runs then. While the
// connection lives the relay does, and also behind a pooler, where it is unknown.
func TestRelayWhoseConnectionIsGone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn, err := b.db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	killed := conn.Hijack()
	b.takeLease()
	stopped := func() *health.Condition {
		t.Helper()
		held := b.read(health.Config{}).Degraded
		i := slices.IndexFunc(held, func(c health.Condition) bool { return c.Name == health.RelayStopped })
		if i < 0 {
			return nil
		}
		return &held[i]
	}
	if c := stopped(); c != nil {
		t.Errorf("without a known connection: %+v", c)
	}
	b.exec("update taskledger.lease set backend = $1 where name = 'relay'", int32(killed.PgConn().PID()))
	if c := stopped(); c != nil {
		t.Errorf("with a connection: %+v", c)
	}
	if err := killed.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.await("the condition", func() bool { return stopped() != nil })
	if c := stopped(); c == nil || !c.Since.IsZero() {
		t.Errorf("after the end of the connection: %+v", c)
	}
	b.exec("update taskledger.lease set backend = pg_backend_pid() where name = 'relay'")
	if c := stopped(); c != nil {
		t.Errorf("after it has connected again: %+v", c)
	}
}
