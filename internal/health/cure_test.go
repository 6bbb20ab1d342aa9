package health_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A condition that follows from another one leads to the cure of that one, and not to a service or a worker that works.
func TestCuresLeadToTheCause(t *testing.T) {
	t.Parallel()
	const (
		blocked = `update taskledger.lease set detail = json_build_object(
			'note', 'not connected to NATS', 'since', clock_timestamp()) where name = 'relay'`
		stopped = `update taskledger.lease set alive_until = clock_timestamp() - interval '1 minute'
			where name = 'relay'`
		copied = `update taskledger.lease set alive_until = clock_timestamp() - interval '1 minute',
			detail = (detail::jsonb || '{"note": "this database is a copy"}')::json where name = 'dispatcher'`
		ended = `update taskledger.lease set alive_until = clock_timestamp() - interval '1 minute'
			where name = 'dispatcher'`
	)
	available := func(b *bundle, _ *health.Config) {
		ledgertest.Enqueue(b.t, b.db, ledgertest.Key(b.t, "coupon.send/1"), "")
		b.project()
		time.Sleep(2 * time.Millisecond)
	}
	unbegun := func(b *bundle, c *health.Config) {
		b.exec("select taskledger.heartbeat('sql-1', '{coupon.send}')")
		available(b, c)
		c.Thresholds = map[health.Name]time.Duration{health.TasksUnbegun: time.Millisecond}
	}
	limited := func(b *bundle, c *health.Config) {
		unbegun(b, c)
		ledgertest.ExecAsOwner(b.t, b.db, `
			select taskledger_internal.set_start_limit(
			  'exports', '{coupon.send}', '{1}', null, 0, null, null, null, 'ada')`)
	}
	unhandled := func(b *bundle, c *health.Config) {
		available(b, c)
		c.Thresholds = map[health.Name]time.Duration{health.KindUnhandled: time.Millisecond}
	}
	away := func(_ *bundle, c *health.Config) { c.NATSError = errors.New("no servers available") }
	missing := func(b *bundle, c *health.Config) { c.JetStream = b.jetStream() }
	late := func(b *bundle, c *health.Config) {
		available(b, c)
		c.Thresholds = map[health.Name]time.Duration{health.RelayLag: time.Millisecond}
	}
	held := func(by string) func(*bundle, *health.Config) {
		return func(b *bundle, _ *health.Config) {
			ledgertest.ExecAsOwner(b.t, b.db, `
				insert into taskledger.archive_run (cutoff, top, seen, waits_for, ended_at, tasks, held, held_by,
				                                    held_since)
				select now(), 1, '1:1:', '{}', now(), 2, 3, '`+by+`', now() - interval '9 hours'`)
		}
	}
	for _, c := range []struct {
		name    string
		relay   string // changes the lease of a relay or a dispatcher that works
		arrange func(*bundle, *health.Config)
		of      health.Name
		want    string // the beginning of its cure
	}{
		{
			name: "unbegun without a dispatcher", relay: ended, arrange: unbegun,
			of: health.TasksUnbegun, want: "see dispatcher_stopped",
		},
		{
			name: "unbegun with a dispatcher", arrange: unbegun,
			of: health.TasksUnbegun, want: "see whether the kind has free slots",
		},
		{
			name: "unbegun at a limit of starts", arrange: limited,
			of: health.TasksUnbegun, want: "raise the limit",
		},
		{
			name: "dispatcher of a copy", relay: copied, arrange: unhandled,
			of: health.DispatcherStopped, want: "follow the text",
		},
		{
			name: "no workers", arrange: unhandled,
			of: health.KindUnhandled, want: "start the program",
		},
		{
			name: "NATS is away", relay: blocked, arrange: away,
			of: health.RelayBlocked, want: "see stream_unavailable",
		},
		{
			name: "NATS is away", relay: blocked, arrange: away,
			of: health.StreamUnavailable, want: "is NATS running",
		},
		{
			name: "a relay cannot make the stream", relay: blocked, arrange: missing,
			of: health.StreamUnavailable, want: "see relay_blocked",
		},
		{
			name: "a relay makes the stream", arrange: missing,
			of: health.StreamUnavailable, want: "relay relay-1 is catching up",
		},
		{
			name: "a relay is late", arrange: late,
			of: health.RelayLag, want: "relay relay-1 is catching up",
		},
		{
			name: "the seal is late", arrange: held("seal"),
			of: health.ArchiveHeld, want: "tasks stay until they are sealed",
		},
		{
			name: "the projection is late", arrange: held("projector"),
			of: health.ArchiveHeld, want: "start taskledger serve",
		},
		{
			name: "a subscriber is late", arrange: held("subscriber/coupons"),
			of: health.ArchiveHeld, want: "start the reader",
		},
		{
			name: "no relay", relay: stopped, arrange: late,
			of: health.RelayLag, want: "is a relay running?",
		},
	} {
		t.Run(c.name+" "+string(c.of), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.takeLease()
			var config health.Config
			c.arrange(b, &config)
			if c.relay != "" {
				b.exec(c.relay)
			}
			for _, held := range b.read(config).Degraded {
				if held.Name == c.of {
					if !strings.HasPrefix(held.Cure, c.want) {
						t.Errorf("%s has the cure %q, want %q", c.of, held.Cure, c.want)
					}
					return
				}
			}
			t.Errorf("%s does not hold", c.of)
		})
	}
}

// The beginning of a condition is not the time of the report less the threshold.
func TestUnbegunWithoutABeginning(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.takeLease()
	b.exec("select taskledger.heartbeat('sql-1', '{coupon.send}')")
	ledgertest.ExecAsOwner(t, b.db, `select taskledger.enqueue('coupon.send', n::text) from generate_series(1, 1001) n`)
	b.project()
	time.Sleep(2 * time.Millisecond)
	var c health.Config
	c.Thresholds = map[health.Name]time.Duration{health.TasksUnbegun: time.Millisecond}
	c.Only = []health.Name{health.TasksUnbegun}
	r := b.read(c)
	if len(r.Degraded) != 1 || !r.Degraded[0].Since.IsZero() || len(r.Unbegun) != 1 || !r.Unbegun[0].OldestAt.IsZero() {
		t.Errorf("the beginning is unknown, and the report has %+v", r)
	}
}
