package scheduler

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/timers_turns.sql
var timersTurnsSQL string

// maxTurn is the maximum number of timers of a kind in a turn.
const maxTurn = maxBatch / 10

// fireTurn fires timers of every kind in turn, at most [maxTurn] of each. Batches fire timers in the order of their
// due times: while batches are full, many timers of one kind would delay all other kinds.
func (s *Scheduler) fireTurn(ctx context.Context) error {
	tasks, err := s.readTurn(ctx)
	if err != nil || len(tasks) == 0 || tasks[0].key.Kind == tasks[len(tasks)-1].key.Kind {
		return err // the next batch fires the timers of a single kind
	}
	_, err = s.fire(ctx, pgquery.Time(s.horizon.next), tasks)
	if pgerr.Is(err, pgerr.LockNotAvailable) {
		if s.deferred.count()+len(tasks) <= maxDeferred {
			s.deferred.add(tasks)
		}
		return nil
	}
	return err
}

// readTurn returns the first due timers of the following kinds, and begins again after the last kind.
func (s *Scheduler) readTurn(ctx context.Context) (tasks []dueTask, err error) {
	rows := 0
	batch := &pgx.Batch{}
	batch.Queue(settingsSQL, lockTimeout(batchPatience), "on")
	args := []any{
		pgquery.Time(s.horizon.next), string(s.turn), int64(maxBatch), int64(maxTurn), s.deferred.literal(),
	}
	batch.Queue(timersTurnsSQL, args...).Query(func(found pgx.Rows) error {
		var kind string
		var id *string
		var t dueTask
		_, err := pgx.ForEachRow(found, []any{&kind, &id, pgquery.Micros(&t.at)}, func() error {
			rows++
			s.turn = ledger.Kind(kind)
			if id != nil {
				t.key = ledger.Key{Kind: s.turn, BizID: ledger.BizID(*id)}
				tasks = append(tasks, t)
			}
			return nil
		})
		return err
	})
	err = s.config.DB.SendBatch(ctx, batch).Close()
	if rows < maxBatch {
		s.turn = ""
	}
	return tasks, err
}
