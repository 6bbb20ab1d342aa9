package health_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/outbox"
)

// conditionTest makes one condition hold in a ledger with a healthy relay.
type conditionTest struct {
	arrange func(*bundle, *health.Config)
	text    string // a part of the text
	about   string
	cure    string // the beginning of the cure; "": the cure of the definition
	isSince bool   // the condition has a beginning
}

var conditionTests = map[health.Name]conditionTest{
	health.RelayStopped: {
		arrange: func(b *bundle, _ *health.Config) {
			b.exec(`update taskledger.lease set alive_until = clock_timestamp() - interval '1 minute'
				where name = 'relay'`)
		},
		text: "the last one was relay-1", isSince: true,
	},
	health.DispatcherStopped: {
		arrange: func(b *bundle, _ *health.Config) {
			b.exec(`update taskledger.lease set alive_until = clock_timestamp() - interval '1 minute'
				where name = 'dispatcher'`)
		},
		text: "no dispatcher is running", isSince: true,
	},
	health.RelayRefused: {
		arrange: func(b *bundle, _ *health.Config) {
			b.exec(`
				update taskledger.lease set detail = json_build_object(
				  'note', 'message 2 is foreign', 'since', clock_timestamp(), 'refused', true)
				 where name = 'relay'`)
		},
		text: "the relay refuses to continue: message 2 is foreign", isSince: true,
	},
	health.RelayBlocked: {
		arrange: func(b *bundle, _ *health.Config) {
			b.exec(`
				update taskledger.lease set detail = json_build_object(
				  'note', 'the stream is full', 'since', clock_timestamp()) where name = 'relay'`)
		},
		text: "relay relay-1 cannot publish: the stream is full", isSince: true,
	},
	health.StreamWrites: {
		arrange: func(b *bundle, _ *health.Config) {
			b.exec(`
				update taskledger.lease set detail = json_build_object(
				  'note', 'publish: no acknowledgement in time', 'cause', 'store', 'since', clock_timestamp())
				 where name = 'relay'`)
		},
		text: "JetStream does not store the messages of relay relay-1: publish: no ackn", isSince: true,
	},
	health.RelayLag: {
		arrange: func(b *bundle, c *health.Config) {
			ledgertest.Enqueue(b.t, b.db, ledgertest.Key(b.t, "coupon.send/1"), "")
			time.Sleep(2 * time.Millisecond)
			c.Thresholds = map[health.Name]time.Duration{health.RelayLag: time.Millisecond}
		},
		text: "to be published; the threshold is 1ms", isSince: true, cure: "relay relay-1 is catching up",
	},
	health.EventsParked: {
		arrange: func(b *bundle, _ *health.Config) {
			b.exec(`
				insert into taskledger.parked (position, kind, biz_id, version, reason)
				select g, 'coupon.send', g::text, 1, 'reason ' || g from generate_series(1, 3) g`)
		},
		text: "published: 3; the reason for the last one: reason 3", isSince: true,
	},
	health.StreamUnavailable: {
		arrange: func(_ *bundle, c *health.Config) { c.NATSError = errors.New("no servers\x1b[31m available") },
		text:    `cannot read the state of the stream: no servers\x1b[31m available`,
	},
	health.StreamDrift: {
		arrange: func(b *bundle, c *health.Config) {
			c.JetStream = b.jetStream()
			b.createStream(c.JetStream, outbox.StreamConfig{MaxAge: time.Hour})
			c.Stream.MaxAge = 2 * time.Hour // without it, the age is not compared
		},
		text: "stream LEDGER differs from its configuration: max age is 1h0m0s, configured is 2h0m0s",
	},
	health.ReplicaBehind: {
		arrange: func(b *bundle, c *health.Config) {
			js, stop := b.cluster()
			c.JetStream, c.Stream.Replicas = js, 3
			b.createStream(js, c.Stream)
			stop()
			b.await("a replica to be behind", func() bool {
				s, err := relays.ReadStatus(b.t.Context(), b.db, js, c.Stream)
				return err == nil && s.Stream != nil && len(s.Stream.Behind) == 1
			})
		},
		about: "node-2",
		text:  "server node-2 is missing part of stream LEDGER",
	},
	health.ConsumerLate: {
		arrange: func(b *bundle, c *health.Config) {
			c.JetStream = b.jetStream()
			c.Stream.MaxBytes = 64 << 10
			b.createStream(c.JetStream, c.Stream)
			consumer := jetstream.ConsumerConfig{Durable: "mails", AckPolicy: jetstream.AckExplicitPolicy}
			if _, err := c.JetStream.CreateConsumer(b.t.Context(), stream.Name, consumer); err != nil {
				b.t.Fatal(err)
			}
			for range 2 { // the second one takes the place of the first one
				_, err := c.JetStream.Publish(b.t.Context(), "ledger.0.started.coupon.send", make([]byte, 40<<10))
				if err != nil {
					b.t.Fatal(err)
				}
			}
		},
		about: "mails",
		text:  "consumer mails has fallen behind the oldest message of stream LEDGER",
	},
	health.SubscriberBehind: {
		arrange: func(b *bundle, c *health.Config) {
			ledgertest.Enqueue(b.t, b.db, ledgertest.Key(b.t, "coupon.send/1"), "")
			b.exec(`select taskledger.seek_feed('mails', 0);
				select taskledger_internal.mark_feed('mails', '{"paused":true}')`)
			time.Sleep(2 * time.Millisecond)
			c.Thresholds = map[health.Name]time.Duration{health.SubscriberBehind: time.Millisecond}
		},
		text:  "behind and is paused; events it has not processed: 1; the threshold is 1ms",
		cure:  "resume it: taskledger resume subscriber mails",
		about: "mails", isSince: true,
	},
	health.WebhookStopped: {
		arrange: func(b *bundle, _ *health.Config) {
			b.exec(`select taskledger.seek_feed('webhook-shop', 0)`)
			b.exec(`insert into taskledger.pause (kind, actor, reason)
				values ('taskledger.webhook.shop', 'a', 'the receiver has answered 410 Gone'),
				       ('taskledger.webhook.club', 'b', 'it moves')`)
		},
		text: "receiver shop answered 410 Gone", about: "shop", isSince: true,
		cure: "when it is back: taskledger resume kind taskledger.webhook.shop",
	},
	health.ProjectorRefused: {
		arrange: func(b *bundle, _ *health.Config) {
			ledgertest.Enqueue(b.t, b.db, ledgertest.Key(b.t, "coupon.send/1"), "")
			b.project()
			ledgertest.ExecAsOwner(b.t, b.db, "update taskledger.cursor set origin = '1/1'")
		},
		text: "the projector refuses to continue: cursor",
	},
	health.SubscriberFailed: {
		arrange: func(b *bundle, _ *health.Config) {
			ledgertest.ExecAsOwner(b.t, b.db, `
				insert into taskledger.subscriber_state
				  (reader, version, shape, tables, parks, failed_position, failed_kind, failed_biz_id, failed_version,
				   failures, failing_since, failure)
				values ('subscriber/coupons', 1, '', '{}', false, 17, 'coupon.send', 'A-1', 2, 12, clock_timestamp(),
				        e'no\nstack')`)
		},
		text:  "cannot handle the event at position 17, coupon.send/A-1/2, and has tried 12 times: no",
		about: "coupons", isSince: true,
	},
	health.SubscriberParked: {
		arrange: func(b *bundle, _ *health.Config) {
			ledgertest.ExecAsOwner(b.t, b.db, `
				insert into taskledger.subscriber_state (reader, version, shape, tables, parks)
				values ('subscriber/coupons', 1, '', '{}', true);
				insert into taskledger.subscriber_parked (reader, kind, biz_id, version, position, error, failures)
				select 'subscriber/coupons', 'a', 'b', v, v, '', 0 from generate_series(1, 3) v`)
		},
		text: "subscriber coupons has parked events: 3", about: "coupons",
	},
	health.ProjectionLag: {
		arrange: func(b *bundle, c *health.Config) {
			ledgertest.Enqueue(b.t, b.db, ledgertest.Key(b.t, "coupon.send/1"), "")
			time.Sleep(2 * time.Millisecond)
			c.Thresholds = map[health.Name]time.Duration{health.ProjectionLag: time.Millisecond}
		},
		text: "to be projected; the threshold is 1ms", isSince: true,
	},
	health.TimersLate: {
		arrange: func(b *bundle, _ *health.Config) {
			ledgertest.Append(b.t, b.db, ledgertest.Key(b.t, "coupon.send/1"), ledger.EventSnoozed)
			ledgertest.ExecAsOwner(b.t, b.db,
				"update taskledger.timer set due_at = clock_timestamp() - interval '31 s'")
		},
		text: "s; timers due: 1", isSince: true,
	},
	health.ScheduleLate: {
		arrange: func(b *bundle, _ *health.Config) {
			s := periodic.Schedule{Name: "nightly", Kind: "report.make", Every: time.Hour}
			if _, err := periodic.Apply(b.t.Context(), b.db, []periodic.Schedule{s}, nil); err != nil {
				b.t.Fatal(err)
			}
			b.exec("update taskledger.schedule set next_at = clock_timestamp() - interval '31 s'")
		},
		text: "schedule nightly has been due for 31s and has not fired", about: "nightly", isSince: true,
	},
	health.KindUnhandled: {
		arrange: func(b *bundle, _ *health.Config) {
			for _, key := range []string{"coupon.send/1", "mail.send/1"} {
				ledgertest.Enqueue(b.t, b.db, ledgertest.Key(b.t, key), "")
			}
			b.exec(`insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
				values (1, 0, 0, 'enqueued', 'taskledger.alarm', 'ops-1')`)
			b.project()
			b.exec("update taskledger.task set updated_at = clock_timestamp() - interval '31 s'")
		},
		text: "no worker handles their kind: coupon.send, mail.send", isSince: true,
	},
	health.OperationOpen: {
		arrange: func(b *bundle, _ *health.Config) {
			act := operation.Operation{
				Action: operation.RebuildProjection, Actor: "alice",
				Detail: map[string]string{"projection": "tasks"},
			}
			if _, err := operation.Begin(b.t.Context(), b.db, act); err != nil {
				b.t.Fatal(err)
			}
			b.project()
			owner := ledgertest.As(b.t, b.db, ledgertest.Owner)
			for _, sql := range []string{
				"update taskledger.task set updated_at = clock_timestamp() - interval '61 s'",
				"alter table taskledger.event disable trigger user",
				"update taskledger.event set recorded_at = clock_timestamp() - interval '61 s'",
			} {
				if _, err := owner.Exec(b.t.Context(), sql); err != nil {
					b.t.Fatal(err)
				}
			}
		},
		text: "projection.rebuild of tasks, by alice, has not ended", isSince: true, about: "projection.rebuild",
	},
	health.EventsIllegal: {
		arrange: func(b *bundle, _ *health.Config) {
			b.exec(`
				insert into taskledger.illegal_event (kind, biz_id, version, reason)
				select 'coupon.send', g::text, 2, 'reason ' || g from generate_series(1, 3) g`)
		},
		text: "illegal events: 3; the last one: reason 3", isSince: true,
	},
	health.TasksUnbegun: {
		arrange: func(b *bundle, c *health.Config) {
			b.exec("select taskledger.heartbeat('sql-1', '{coupon.send,mail.send}')")
			for _, key := range []string{"coupon.send/1", "coupon.send/2", "mail.send/1"} {
				ledgertest.Enqueue(b.t, b.db, ledgertest.Key(b.t, key), "")
			}
			ledgertest.Append(b.t, b.db, ledgertest.Key(b.t, "mail.send/1"), ledger.EventStarted)
			b.project()
			time.Sleep(2 * time.Millisecond)
			c.Thresholds = map[health.Name]time.Duration{health.TasksUnbegun: time.Millisecond}
		},
		text: "has been waiting for a worker for", isSince: true,
	},
	health.AttemptsRepeated: {
		arrange: func(b *bundle, _ *health.Config) {
			b.exec(`
				insert into taskledger.lease (name, holder, alive_until, detail)
				select 'worker/' || n, n, clock_timestamp() + interval '1 hour',
				       json_build_object('kinds', json_build_array('coupon.send'), 'repeating', json_build_array(
				         json_build_object('kind', 'coupon.send', 'biz_id', n, 'times', length(n), 'error', 'deadlock',
				           'since', '2026-11-22T10:00:00.123456789Z')))
				  from unnest(array['often', 'seldom-2']) n`)
		},
		text: "tasks: 2; coupon.send/seldom-2 8 times: deadlock", isSince: true,
	},
	health.SnoozedInARow: {
		arrange: func(b *bundle, _ *health.Config) {
			// Of two tasks that were snoozed five times in a row, one has gone on.
			b.exec(`
				insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor, data)
				select 'coupon.send', n, i, i / 2, 0, (case when i = 1 then 'enqueued' when i % 2 = 1 then 'released'
				         when i = 12 then 'succeeded' else 'snoozed' end)::taskledger.event_type, 'w',
				       (case when i % 2 = 0 and i < 12 then '{"short_in_a_row":' || i / 2 || '}' end)::json
				  from (values ('well', 12), ('round', 11)) t(n, last), generate_series(1, last) i`)
		},
		text: "tasks: 1; coupon.send/round 5 times in a row",
	},
	health.ArchiveHeld: {
		arrange: func(b *bundle, _ *health.Config) {
			ledgertest.ExecAsOwner(b.t, b.db, `
				insert into taskledger.archive_run (cutoff, top, seen, waits_for, ended_at, tasks, held, held_by,
				                                    held_since)
				select now(), 1, '1:1:', '{}', now(), 2, n, 'coupons', now() - n * interval '1 hour'
				  from unnest(array[9, 3]) n`)
		},
		text: "reader coupons holds finished tasks in the tables: 3, the oldest of ",
	},
	health.ArchiveStopped: {
		arrange: func(b *bundle, _ *health.Config) {
			// A run has ended, two that began later have not.
			ledgertest.ExecAsOwner(b.t, b.db, `
				insert into taskledger.archive_run (cutoff, top, seen, waits_for, begun_at, ended_at, tasks, held)
				select now(), 1, '1:1:', '{}', now() - n * interval '1 hour',
				       case when n = 4 then now() - interval '4 hours' end, 0, 0
				  from unnest(array[5, 4, 3, 1]) with ordinality t(n, o) order by o`)
		},
		text: "neither ended nor removed tasks", isSince: true,
	},
	health.LinesStopped: {
		arrange: func(b *bundle, _ *health.Config) {
			// Of two dead tasks with a turn, one is passed over. A third one has been released, and has its turn.
			ledgertest.ExecAsOwner(b.t, b.db, `
				insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor, data, meta, order_key)
				select 'coupon.send', n, i, 0, 0, (array['lined_up', 'released', 'buried', 'lined_up', 'released'])[i]
				         ::taskledger.event_type, 'w',
				       case when i in (2, 5) then '{"reason":"turn","place":1,"seen":"1:1:","bound":"2"}' end::json,
				       case when i = 1 and n = 'passed' then '{"pass_if_dead":true}' end::json, 'line/' || n
				  from (values ('dead', 3), ('passed', 3), ('released', 5)) t(n, last), generate_series(1, last) i
				 order by n, i`)
		},
		text: "lines: 1: line/dead (coupon.send/dead)", isSince: true,
	},
	health.StartsHeld: {
		arrange: func(b *bundle, c *health.Config) {
			b.hold("lock table taskledger.mutex in share row exclusive mode")
			c.DB = ledgertest.As(b.t, b.db, ledgertest.Owner) // sees all sessions
			c.Thresholds = map[health.Name]time.Duration{health.StartsHeld: time.Millisecond}
		},
		text: "holds the turns of all lines", isSince: true,
		cure: "end it in its program, or: select pg_terminate_backend(",
	},
	health.AlarmUndelivered: {
		arrange: func(_ *bundle, c *health.Config) {
			c.Alarms = func(context.Context, ledger.DB) ([]health.UndeliveredAlarm, error) {
				return []health.UndeliveredAlarm{{Alarm: "ops/1", MadeAt: time.Unix(1, 0), Error: "exit status 7"}}, nil
			}
		},
		text: "alarm ops/1 could not be delivered: exit status 7", about: "ops/1", isSince: true,
	},
}

// Each condition is reported alone when it holds, with its beginning, threshold and cure. It is not reported by
// a report of other conditions.
func TestConditions(t *testing.T) {
	t.Parallel()
	for _, d := range health.Definitions() {
		t.Run(string(d.Name), func(t *testing.T) {
			t.Parallel()
			test, isTested := conditionTests[d.Name]
			if !isTested {
				t.Fatal("no test")
			}
			b := setup(t)
			b.takeLease()
			var c health.Config
			test.arrange(b, &c)
			for _, name := range []health.Name{health.RelayLag, health.ProjectionLag} {
				if d.Name == name || c.Thresholds[name] != 0 {
					continue
				}
				if c.Thresholds == nil {
					c.Thresholds = make(map[health.Name]time.Duration)
				}
				c.Thresholds[name] = time.Hour // no service runs, however long the test takes
			}
			r := b.read(c)
			if len(r.Degraded) != 1 || r.Degraded[0].Name != d.Name {
				t.Fatalf("degraded %+v, want %s only", r.Degraded, d.Name)
			}
			got := r.Degraded[0]
			if !strings.Contains(got.Text, test.text) || got.About != test.about ||
				!strings.HasPrefix(got.Cure, cmp.Or(test.cure, d.Cure)) {
				t.Errorf("condition %+v, want the text %q about %q", got, test.text, test.about)
			}
			if got.Since.IsZero() == test.isSince || got.Since.After(r.At) || (got.Threshold > 0) != (d.Threshold > 0) {
				t.Errorf("condition %+v at %s: since or threshold is wrong", got, r.At)
			}
			for _, other := range health.Definitions() {
				c.Only = []health.Name{other.Name}
				if n := len(b.read(c).Degraded); (n == 1) != (other.Name == d.Name) {
					t.Errorf("%d conditions in a report of %s", n, other.Name)
				}
			}
		})
	}
}

// A subscriber whose new tables are being built is not late until the build stops.
func TestLongRebuildIsNoLag(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.takeLease()
	ledgertest.Enqueue(b.t, b.db, ledgertest.Key(b.t, "coupon.send/1"), "")
	b.project()
	ledgertest.ExecAsOwner(b.t, b.db, `
		select taskledger.seek_feed('coupons', 0);
		insert into taskledger.subscriber_state
		  (reader, version, shape, tables, parks, work, work_at, work_done, work_total)
		values ('subscriber/coupons', 1, '', '{}', false, 'rebuild', clock_timestamp(), 7, 9)`)
	time.Sleep(2 * time.Millisecond)
	c := health.Config{
		Thresholds: map[health.Name]time.Duration{health.SubscriberBehind: time.Millisecond},
		Only:       []health.Name{health.SubscriberBehind},
	}
	if r := b.read(c); len(r.Degraded) != 0 {
		t.Errorf("during the build: %+v", r.Degraded)
	}
	for _, end := range []string{"work_at = clock_timestamp() - interval '2 minutes'",
		"work_at = clock_timestamp(), work_result = '{}'"} {
		ledgertest.ExecAsOwner(b.t, b.db,
			"update taskledger.subscriber_state set "+end+" where reader = 'subscriber/coupons'")
		if r := b.read(c); len(r.Degraded) != 1 || r.Degraded[0].About != "coupons" {
			t.Errorf("%s: %+v", end, r.Degraded)
		}
	}
}

// A refusal does not hide a lag, since an alarm may have a rule for the lag only.
func TestRefusedAndLate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.takeLease()
	ledgertest.Enqueue(t, b.db, ledgertest.Key(t, "coupon.send/1"), "")
	b.project()
	ledgertest.Enqueue(t, b.db, ledgertest.Key(t, "coupon.send/2"), "")
	ledgertest.ExecAsOwner(b.t, b.db, "update taskledger.cursor set origin = '1/1'")
	b.exec(`
		insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin, xid)
		select 'relay', n, seen, seen_top, seen_bound, origin, '9000000000' from taskledger.cursor`)
	time.Sleep(2 * time.Millisecond)
	short := map[health.Name]time.Duration{health.RelayLag: time.Millisecond, health.ProjectionLag: time.Millisecond}
	r := b.read(health.Config{Thresholds: short})
	want := []health.Name{health.RelayRefused, health.RelayLag, health.ProjectorRefused, health.ProjectionLag}
	if have := names(r); !slices.Equal(have, want) {
		t.Errorf("degraded %q, want %q", have, want)
	}
	if text := r.Degraded[0].Text; !strings.HasPrefix(text, `a relay would refuse to continue: cursor "relay"`) {
		t.Errorf("text %q", text)
	}
}

// Without a relay, the report has when the oldest event began to wait.
func TestNoRelay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.read(health.Config{})
	if !slices.Equal(names(r), []health.Name{health.RelayStopped, health.DispatcherStopped}) ||
		!r.Degraded[0].Since.IsZero() {
		t.Errorf("an empty ledger: %+v", r.Degraded)
	}
	ledgertest.Enqueue(t, b.db, ledgertest.Key(t, "coupon.send/1"), "")
	if r = b.read(health.Config{}); !r.Degraded[0].Since.Equal(r.Outbox.OldestAt) || r.Outbox.OldestAt.IsZero() {
		t.Errorf("a ledger with an event since %s: %+v", r.Outbox.OldestAt, r.Degraded)
	}
}

// A negative threshold disables its condition. A delay within a threshold is no condition, but its number is read.
func TestThresholds(t *testing.T) {
	t.Parallel()
	for _, name := range []health.Name{
		health.RelayLag, health.ProjectionLag, health.TimersLate, health.ScheduleLate, health.KindUnhandled,
		health.TasksUnbegun,
	} {
		b := setup(t)
		b.takeLease()
		var c health.Config
		conditionTests[name].arrange(b, &c)
		for _, d := range []time.Duration{-1, time.Hour} {
			c.Thresholds = map[health.Name]time.Duration{
				health.RelayLag: d, health.ProjectionLag: d, health.TimersLate: d, health.ScheduleLate: d,
				health.KindUnhandled: d, health.TasksUnbegun: d,
			}
			r := b.read(c)
			if len(r.Degraded) != 0 {
				t.Errorf("%s with the thresholds %s: %+v", name, d, r.Degraded)
			}
			if r.Outbox.Waiting+int64(r.Projection.Waiting+r.Timers.Due+r.Schedules.Due+len(r.Unhandled)) == 0 {
				t.Errorf("%s with the thresholds %s: no numbers in %+v", name, d, r)
			}
		}
	}
}

// Every fault of a configuration is reported. A database without the schema has an error of its own.
func TestErrors(t *testing.T) {
	t.Parallel()
	_, err := health.Read(t.Context(), health.Config{Only: []health.Name{"bored", health.RelayLag}})
	if want := "health: DB is required\nhealth: Only must have names of conditions, got \"bored\""; err == nil ||
		err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	b := setup(t)
	failure := errors.New("no alarms")
	_, err = health.Read(t.Context(), health.Config{
		DB: b.db, Alarms: func(context.Context, ledger.DB) ([]health.UndeliveredAlarm, error) { return nil, failure },
	})
	if !errors.Is(err, failure) {
		t.Errorf("error %v, want %v", err, failure)
	}
	ledgertest.ExecAsOwner(t, b.db, "drop schema taskledger, taskledger_internal cascade")
	if _, err := health.Read(t.Context(), health.Config{DB: b.db}); !errors.Is(err, ledger.ErrNotMigrated) {
		t.Errorf("without the schema: %v, want %v", err, ledger.ErrNotMigrated)
	}
}

// The JSON of a report has lists and no nulls in their place, and thresholds in milliseconds.
func TestJSON(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.takeLease()
	for _, want := range []string{
		`"projection":{"waiting":0,"waiting_capped":false,"oldest_waiting_ms":0}`, `"tasks":[]`, `"rejected":0`,
		`"unhandled":[]`, `"unbegun":[]`, `"paused":[]`, `"undelivered_alarms":[]`, `"degraded":[]`, `"at":"20`,
	} {
		if text := toJSON(t, b.read(health.Config{})); !strings.Contains(text, want) {
			t.Errorf("%s\nhas no %s", text, want)
		}
	}
	held := health.Condition{Name: health.TimersLate, Threshold: 30 * time.Second, Text: "late", Cure: "start"}
	want := `{"name":"timers_late","text":"late","cure":"start","threshold_ms":30000}`
	if have := toJSON(t, held); have != want {
		t.Errorf("got %s, want %s", have, want)
	}
}

func names(r health.Report) (names []health.Name) {
	for _, c := range r.Degraded {
		names = append(names, c.Name)
	}
	return names
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A start is no cure for the lag of a service that refuses to continue.
func TestLagOfABlockedRelay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.takeLease()
	ledgertest.Enqueue(t, b.db, ledgertest.Key(t, "coupon.send/1"), "")
	b.exec(`
		update taskledger.lease set detail = json_build_object('note', 'NATS has no room', 'since', clock_timestamp())`)
	time.Sleep(2 * time.Millisecond)
	var c health.Config
	c.Thresholds = map[health.Name]time.Duration{health.RelayLag: time.Millisecond}
	c.Only = []health.Name{health.RelayLag, health.RelayBlocked}
	var cures []string
	for _, held := range b.read(c).Degraded {
		cures = append(cures, held.Cure)
	}
	if !slices.Contains(cures, "see relay_blocked") {
		t.Errorf("the cures are %q, want see relay_blocked too", cures)
	}
}

func TestLagOfARefusedService(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.takeLease()
	ledgertest.Enqueue(t, b.db, ledgertest.Key(t, "coupon.send/1"), "")
	b.project()
	b.exec(`
		insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin, mark)
		values ('relay', 1, '3:3:', 0, '3', taskledger_internal.origin(), '{"generation":1}')`)
	ledgertest.ExecAsOwner(t, b.db, "update taskledger.cursor set origin = '1/1'")
	ledgertest.Enqueue(t, b.db, ledgertest.Key(t, "coupon.send/2"), "")
	time.Sleep(2 * time.Millisecond)
	var c health.Config
	c.Thresholds = map[health.Name]time.Duration{
		health.RelayLag: time.Millisecond, health.ProjectionLag: time.Millisecond,
	}
	cures := make(map[health.Name]string)
	for _, held := range b.read(c).Degraded {
		cures[held.Name] = held.Cure
	}
	for lag, refused := range map[health.Name]health.Name{
		health.RelayLag: health.RelayRefused, health.ProjectionLag: health.ProjectorRefused,
	} {
		if want := "see " + string(refused); cures[lag] != want || cures[refused] == "" {
			t.Errorf("%s has the cure %q, want %q; all: %v", lag, cures[lag], want, cures)
		}
	}
}
