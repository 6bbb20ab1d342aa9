package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/projector"
)

// shownObjects returns the objects of show.
func shownObjects() []showObject {
	objects := append(shownTasks(), shownWork()...)
	return append(append(objects, shownReaders()...), shownOthers()...)
}

func shownTasks() []showObject {
	return []showObject{{
		name: "tasks", argument: "KIND BIZ_ID",
		short: "Tasks, newest first; the current state of one",
		long: `List tasks of the projection, newest first. One call reads a bounded part of the ledger. Its output
ends with the position at which to continue; in JSON that is "next". Tasks of taskledger itself (schedules,
alarms, acts on record) are listed with --all, or with their --kind.

Of one task, show the state, now or in the past, from its events. It does not need a projector.`,
		example: "  taskledger show tasks --state dead --error refused\n" +
			"  taskledger show tasks --kind coupon.send --biz-id order- --limit 10 -o jsonl\n" +
			"  taskledger show tasks --since 2026-11-17T09:00:00Z --utc --watch\n" +
			"  taskledger show task coupon.send order-17\n  taskledger show task coupon.send/order-17 -o json\n" +
			"  taskledger show task coupon.send order-17 --as-of 2026-11-17T09:00:00Z",
		limit: 50, maxLimit: projector.MaxList,
		flags: []string{
			"kind", "state", "biz-id", "actor", "tag", "partition", "order-key", "error", "since", "until", "all",
			"utc", "local",
		},
		flagsOfOne: []string{"as-of", "archive"},
		list:       listTasks,
		one: func(ctx context.Context, a *app, pool *pgxpool.Pool, args []string, f showFlags) error {
			key, err := parseKey(args)
			if err != nil {
				return err
			}
			return showTask(ctx, a, pool, key, f.asOf, f.archive)
		},
	}, {
		name:  "dead",
		short: "Dead tasks, grouped by their error",
		long: fmt.Sprintf(`Show dead tasks in groups, the largest first. A group has one kind and one fingerprint:
errors of one type whose messages differ only in numbers, UUIDs and quoted parts. Release a group with
taskledger release --fingerprint.

At most %s tasks of each group are read: "%[1]s+" means that it has more.`, count(deadTasks)),
		example: "  taskledger show dead\n  taskledger show dead --kind coupon.send -o json",
		limit:   defaultPage, maxLimit: maxPage, flags: []string{"kind"},
		list: showDead,
	}}
}

func shownWork() []showObject {
	return []showObject{{
		name:  "kinds",
		short: "Kinds, their tasks and workers, and which are paused",
		long: `List the kinds that have tasks or live workers, or are paused. The projector counts the tasks, a moment
behind the ledger.`,
		example: "  taskledger show kinds\n  taskledger show kinds -o json",
		limit:   defaultPage, maxLimit: maxPage, list: listKinds,
	}, {
		name:    "limits",
		short:   "Limits of kinds, and how many tasks wait and run",
		example: "  taskledger show limits\n  taskledger show limits -o json",
		limit:   defaultPage, maxLimit: maxPage, list: listLimits,
	}, {
		name:  "workers",
		short: "Worker processes with their kinds and shards",
		long: `List the worker processes with their kinds and shards. A process that ended without a shutdown is
lost: other workers take over its tasks. It is listed for another day. Workers begin no tasks of a
paused kind (taskledger resume kind).

Running counts the slots that handlers hold. Overdue counts handlers that did not return in time: their
tasks continue elsewhere, and their slots stay busy until they return. These numbers, tasks in
flight and attempts per minute are as of the last renewal of the worker's lease, some seconds ago.
Workers in SQL do not report them.`,
		example: "  taskledger show workers\n  taskledger show workers -o json",
		limit:   defaultPage, maxLimit: maxPage, list: listWorkers,
	}, {
		name: "schedules", argument: "NAME",
		short:   "Schedules and their next and last firings",
		example: "  taskledger show schedules\n  taskledger show schedule nightly-report",
		limit:   defaultPage, maxLimit: maxPage, list: listSchedules,
		one: func(ctx context.Context, a *app, pool *pgxpool.Pool, args []string, _ showFlags) error {
			s, err := periodic.Load(ctx, pool, args[0])
			if err != nil {
				return unknownSchedule(err, args[0])
			}
			return printSchedule(a, s)
		},
	}}
}

func shownReaders() []showObject {
	return []showObject{{
		name: "subscribers", argument: "NAME",
		short: "Subscribers, how far each is behind, and the events that stop them",
		long: `List the subscribers in Go (outbox.Subscribe) and SQL (taskledger.read_feed), how many events each has
not passed and, of one with tables or that parks events, what the database contains of it. Consumers
of the stream are not among them: taskledger show stream.`,
		example: "  taskledger show subscribers\n  taskledger show subscriber mails -o json",
		limit:   defaultPage, maxLimit: maxPage, list: listSubscribers,
		one: func(ctx context.Context, a *app, pool *pgxpool.Pool, args []string, _ showFlags) error {
			return showSubscriber(ctx, a, pool, args[0])
		},
	}, {
		name:    "stream",
		short:   "The stream LEDGER, its consumers and its drift from the configuration",
		example: "  taskledger show stream",
		list: func(ctx context.Context, a *app, pool *pgxpool.Pool, _ showFlags) error {
			return showStream(ctx, a, pool)
		},
	}, {
		name: "parked", argument: "POSITION",
		short: "Events that could not be published, or that a subscriber cannot handle",
		long: `List the events that could not be published, oldest first; of one, show the whole reason.
With --subscriber, list the events that a subscriber has parked or leaves out.`,
		example: "  taskledger show parked\n  taskledger show parked 4711\n" +
			"  taskledger show parked --subscriber coupons",
		limit: 100, maxLimit: maxPage, flags: []string{"subscriber"},
		list: func(ctx context.Context, a *app, pool *pgxpool.Pool, f showFlags) error {
			if f.subscriber != "" {
				return listSubscriberParked(ctx, a, pool, f)
			}
			return listParked(ctx, a, pool, f)
		},
		one: func(ctx context.Context, a *app, pool *pgxpool.Pool, args []string, _ showFlags) error {
			return showParked(ctx, a, pool, args)
		},
	}}
}

func shownOthers() []showObject {
	return []showObject{{
		name:    "illegal",
		short:   "Illegal events that the projector has found",
		example: "  taskledger show illegal\n  taskledger show illegal -o json",
		limit:   defaultPage, maxLimit: maxPage, list: listIllegal,
	}, {
		name:  "alarms",
		short: "The newest alarms of every receiver, and the state of their delivery",
		long: `List the newest alarms of every receiver, and the state of their delivery. Alarms are tasks: older ones
are listed with taskledger show tasks --kind ` + string(alarm.Kind) + `. The limit counts for each receiver.`,
		limit: 10, maxLimit: alarm.MaxList, isEndless: true, list: listAlarms,
	}, {
		name:  "tokens",
		short: "Tokens of the HTTP API, including revoked ones",
		list:  listTokens,
	}}
}
