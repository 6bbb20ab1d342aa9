package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger"
)

var databaseFaults = []fault{
	{
		name: "kill-postgres", what: "SIGKILL of PostgreSQL, which starts again", on: "postgres",
		least: 50 * time.Millisecond, most: 2 * time.Second,
		begin: func(_ context.Context, s *stage, _ *rand.Rand) (act, error) {
			return act{"primary", s.db.primary.Restart}, s.db.primary.Kill()
		},
	},
	{
		name: "pause-postgres", what: "SIGSTOP of all server processes of PostgreSQL, and SIGCONT", on: "postgres",
		least: 300 * time.Millisecond, most: 4 * time.Second,
		begin: func(ctx context.Context, s *stage, _ *rand.Rand) (act, error) {
			cure, err := s.db.freeze(ctx)
			return act{"primary", cure}, err
		},
	},
	{
		name: "terminate", what: "all connections to PostgreSQL are ended twice a second", on: "postgres",
		least: 2 * time.Second, most: 5 * time.Second,
		begin: func(ctx context.Context, s *stage, _ *rand.Rand) (act, error) {
			const terminate = `select pg_terminate_backend(pid) from pg_stat_activity
				where datname = current_database() and application_name <> 'nemesis'`
			return act{"primary", repeat(ctx, 500*time.Millisecond, func(ctx context.Context) {
				_ = s.db.exec(ctx, database, terminate) // the next call does what this one could not
			})}, nil
		},
	},
	{
		name: "snapshot", what: "a transaction holds a snapshot", on: "postgres",
		least: 3 * time.Second, most: 15 * time.Second,
		begin: func(ctx context.Context, s *stage, _ *rand.Rand) (act, error) {
			return s.db.hold(ctx, "begin isolation level repeatable read", "select count(*) from taskledger.event")
		},
	},
	{
		name: "writer", what: "a foreign transaction has written and stays open", on: "postgres",
		least: 3 * time.Second, most: 15 * time.Second,
		begin: func(ctx context.Context, s *stage, _ *rand.Rand) (act, error) {
			return s.db.hold(ctx, "begin", "insert into torture.foreign_write values (now())")
		},
	},
	{
		name: "prepared", what: "a transaction that enqueued is prepared, and committed or rolled back later",
		on: "postgres", least: 2 * time.Second, most: 10 * time.Second, begin: prepare,
	},
	{
		name: "clock", what: "PostgreSQL's clock is up to two minutes ahead or behind, and right again",
		on: "postgres", least: 2 * time.Second, most: 8 * time.Second,
		begin: func(_ context.Context, s *stage, random *rand.Rand) (act, error) {
			if s.db.clock == nil {
				return act{}, errSkipped
			}
			ahead := (time.Duration(random.Int64N(int64(2*s.maxStep))) - s.maxStep).Round(time.Second)
			return act{ahead.String(), func(ctx context.Context) error {
				// A promotion uses the clock to explain events that were recorded before it.
				return errors.Join(s.db.clock.Set(0), s.db.synchronizeClock(ctx))
			}}, s.db.clock.Set(ahead)
		},
	},
	{
		name: "promote", what: "the primary is killed, its synchronous standby promoted and a new one added",
		on: "postgres", least: 0, most: time.Second,
		begin: func(ctx context.Context, s *stage, _ *rand.Rand) (act, error) { return promote(ctx, s, true) },
	},
	{
		name: "promote-async", what: "the same with an asynchronous standby, which may lack the last commits",
		on: "postgres", least: 0, most: time.Second, cost: losesCommits,
		begin: func(ctx context.Context, s *stage, _ *rand.Rand) (act, error) { return promote(ctx, s, false) },
	},
}

func promote(ctx context.Context, s *stage, isSynchronous bool) (act, error) {
	if s.db.standby == nil {
		return act{}, errSkipped
	}
	if isSynchronous {
		if err := s.db.synchronize(ctx); err != nil {
			return act{}, err
		}
	}
	if err := s.db.promote(ctx); err != nil {
		return act{}, err
	}
	s.redirect()
	return act{"standby", s.db.addStandby}, nil
}

// freeze stops all processes of the primary, and returns the cure.
func (c *cluster) freeze(ctx context.Context) (func(context.Context) error, error) {
	conn, err := c.connect(ctx, database)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.PgConn().Conn().Close() }() // its server process is paused
	rows, _ := conn.Query(ctx, `select pid from pg_stat_activity union all
		select split_part(pg_read_file('postmaster.pid'), E'\n', 1)::integer`)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, err
	}
	send := func(s syscall.Signal) (err error) {
		for _, pid := range pids {
			if e := signalPID(pid, s); !errors.Is(e, syscall.ESRCH) { // it has ended by itself
				err = errors.Join(err, e)
			}
		}
		return err
	}
	return func(context.Context) error { return send(resume) }, send(pause)
}

// hold executes statements on a connection, which stays as it is until the cure.
func (c *cluster) hold(ctx context.Context, statements ...string) (act, error) {
	conn, err := c.connect(ctx, database)
	if err != nil {
		return act{}, err
	}
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return act{}, errors.Join(err, conn.Close(ctx))
		}
	}
	return act{"primary", func(ctx context.Context) error {
		_ = conn.Close(ctx) // another fault may have ended it
		return nil
	}}, nil
}

// prepare enqueues a task in a transaction that it prepares. The cure commits it or rolls it back.
func prepare(ctx context.Context, s *stage, random *rand.Rand) (act, error) {
	number, commits := random.Uint64(), random.IntN(2) == 0
	id := "prepared-" + strconv.FormatUint(number, 36)
	e := entry{Kind: once.Name(), BizID: ledger.BizID(id), Nonce: "nonce of " + id}
	note := func(op op) {
		e.Op = op
		s.history.add(e)
	}
	note(opBegun)
	sql := strings.Join([]string{"begin",
		fmt.Sprintf(`insert into torture.placed (kind, biz_id, nonce) values ('%s', '%s', '%s')`, e.Kind, id, e.Nonce),
		fmt.Sprintf(`select taskledger.enqueue('%s', '%s', '{"nonce": "%s"}')`, e.Kind, id, e.Nonce),
		fmt.Sprintf(`prepare transaction '%s'`, id)}, ";")
	if err := s.db.exec(ctx, database, sql); err != nil {
		note(opUnknown)
		return act{}, err
	}
	return act{id, func(ctx context.Context) error {
		end, op := "rollback", opRolledBack
		if commits {
			end, op = "commit", opCommitted
		}
		err := s.db.exec(ctx, database, fmt.Sprintf("%s prepared '%s'", end, id))
		if err == nil {
			note(op)
		}
		return err
	}}, nil
}

// revive starts the servers that have ended, and waits until the primary works.
func (c *cluster) revive(ctx context.Context) error {
	for _, server := range []*pgserver.Server{c.primary, c.standby} {
		if server == nil {
			continue
		}
		select {
		case <-server.Done():
			if err := server.Restart(ctx); err != nil {
				return err
			}
		default:
		}
	}
	return persist(ctx, func(ctx context.Context) error {
		_, err := c.is(ctx, "select true")
		return err
	})
}

// synchronizeClock waits until all processes have noticed the clock, and the standby has replicated everything recorded
// before.
func (c *cluster) synchronizeClock(ctx context.Context) error {
	if err := loop.Sleep(ctx, 1500*time.Millisecond); err != nil || c.standby == nil {
		return err
	}
	return c.catchUp(ctx)
}
