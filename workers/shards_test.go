package workers_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// noteWorker is insertEffect with the worker's name as the note.
func noteWorker(name string) func(context.Context, pgx.Tx, *workers.Job, orderArgs) error {
	return func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ orderArgs) error {
		_, err := tx.Exec(ctx, "insert into effect (biz_id, attempt, note) values ($1, $2, $3)",
			string(job.BizID), int(job.Attempt), name)
		return err
	}
}

// workShards runs a worker whose effects contain its name.
func (b *bundle) workShards(name string, c workers.Config) *worker {
	b.T.Helper()
	c.Name = name
	return b.Work(c, b.exactly(noteWorker(name), nil))
}

// shardsBy returns the shards of the tasks that a worker has finished.
func (b *bundle) shardsBy(name string) (shards ledger.ShardSet) {
	b.T.Helper()
	rows := try(
		b.DB.Query(
			b.Context(), "select distinct taskledger.shard_of(biz_id)::integer from effect where note = $1", name,
		),
	)(b.T)
	for _, shard := range try(pgx.CollectRows(rows, pgx.RowTo[int]))(b.T) {
		shards |= ledger.ShardRange(ledger.Shard(shard), ledger.Shard(shard))
	}
	return shards
}

// Workers with fixed shards run the tasks of these, and together they run all tasks.
func TestFixedShards(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	low, high := ledger.ShardRange(0, 31), ledger.ShardRange(32, 63)
	b.workShards("low", workers.Config{Shards: low})
	b.workShards("high", workers.Config{Shards: high})
	b.workShards("high2", workers.Config{Shards: high})
	b.EnqueueMany(500)
	b.AwaitSucceeded(500)
	b.WantOneEffectEach(500)
	if by := b.shardsBy("low"); by&^low != 0 || by == 0 {
		t.Errorf("low did tasks of shards %s", by)
	}
	if by := b.shardsBy("high") | b.shardsBy("high2"); by&^high != 0 || by == 0 {
		t.Errorf("high did tasks of shards %s", by)
	}
}
