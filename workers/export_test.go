package workers

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
	"github.com/taskledger/taskledger/workers/internal/inflight"
)

// SetTogetherTime replaces how long a shared transaction takes in further tasks. It must be called before Run.
func (p *Pool) SetTogetherTime(d time.Duration) { p.runner.SetSharedTime(d) }

// SetAheadTime replaces how much work is fetched beyond the slots, for kinds that are registered later.
func (p *Pool) SetAheadTime(d time.Duration) { p.aheadTime = d }

// SetPace replaces the average time that tasks of a kind take.
func (p *Pool) SetPace(kind ledger.Kind, d time.Duration) { p.byName[kind].Tasks.SetPace(d) }

// Outstanding returns how many tasks of a kind the pool has asked for that have not arrived.
func (p *Pool) Outstanding(kind ledger.Kind) int {
	p.asker.mu.Lock()
	defer p.asker.mu.Unlock()
	return p.asker.machine.Outstanding(kind)
}

// TalkByNATS makes a pool talk over NATS to a dispatcher of its own process. It must be called before Run.
func (p *Pool) TalkByNATS() { p.asker.isRemote = true }

// Ready returns how many tasks wait for a slot.
func (p *Pool) Ready() (n int) {
	for _, k := range p.registered() {
		n += p.slots.Ready(k.line)
	}
	return n
}

// Statements are this package's statements, by file name.
var Statements = map[string]string{
	"worker_list.sql":    workerListSQL,
	"watch.sql":          watchSQL,
	"kinds_admitted.sql": kindsAdmittedSQL,
}

// ErrRowsOpen is the error of handlers that leave rows open in the transaction of their caller.
var ErrRowsOpen = attempt.ErrRowsOpen

// SetStartedAfter replaces how long an attempt may take before its start is recorded.
func SetStartedAfter(d time.Duration, c KindConfig) *KindConfig {
	c.startedAfter = d
	return &c
}

// AcquireSQL acquires a connection of db for a handler of database/sql.
func AcquireSQL(ctx context.Context, db *pgxpool.Pool) (attempt.Conn, error) {
	return (&Pool{config: Config{DB: db}}).acquireSQL(ctx)
}

// ErrConnectionLost is part of the error of an attempt whose connection was lost.
var ErrConnectionLost = attempt.ErrConnectionLost

// AheadBytes limits the args that are fetched beyond the slots.
const AheadBytes = inflight.AheadBytes

// AheadTime is how much work is fetched beyond the slots.
const AheadTime = inflight.AheadTime

// Waiting returns how many tasks of the i-th kind wait for a slot and nothing else.
func (p *Pool) Waiting(i int) int { return p.slots.Ready(p.registered()[i].line) }
