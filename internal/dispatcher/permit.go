package dispatcher

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/dispatch"
	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/permits.sql
	permitsSQL string
	//go:embed sql/permits_remove.sql
	permitsRemoveSQL string
	//go:embed sql/tokens_tidy.sql
	tokensTidySQL string
)

const (
	// tidyEvery is how often old permits are removed, at most tidyBatch in a statement.
	tidyEvery = 2 * time.Second
	tidyBatch = 10_000
	// rereadEvery is how often the permits and tokens in use are read again. The feed keeps them up to date, so this
	// only finds faults, and changes of the database's clock.
	rereadEvery = 10 * time.Second
	// rest is how many times as long as such a statement the pause after it is, at least: its cost grows with the
	// number of values that limits count, and 100,000 of them take seconds.
	rest = 9
	// openMargin is how long after a token can be used again the dispatcher offers a task.
	openMargin = time.Millisecond
)

// clock is the database's time, as an answer has shown it. So it is never ahead, unless the clock was set back.
type clock struct {
	at   time.Time // the database's
	seen time.Time // when the answer arrived
}

// databaseTime returns the database's time, or zero if it is unknown. o.mu is held.
func (o *office) databaseTime() time.Time {
	if o.clock.at.IsZero() {
		return time.Time{}
	}
	return o.clock.at.Add(time.Since(o.clock.seen))
}

// open offers tasks whose gates have opened.
func (o *office) open() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.opensAt = time.Time{}
	o.match()
}

// limitsOf returns limits for the state machine.
func limitsOf(limits []lease.StartLimit) []dispatch.Limit {
	all := make([]dispatch.Limit, 0, len(limits))
	for _, l := range limits {
		kinds := make(map[ledger.Kind]int, len(l.Kinds))
		for i, k := range l.Kinds {
			kinds[k] = l.Weights[i]
		}
		all = append(all, dispatch.Limit{Name: l.Name, Kinds: kinds, Per: l.Per, MaxRunning: l.MaxRunning,
			Burst: l.Burst, Window: time.Duration(l.WindowUS) * time.Microsecond})
	}
	return all
}

// readPermits reads the permits and tokens in use that the state machine wants.
func (o *office) readPermits(ctx context.Context) error {
	var names []string
	o.locked(func() { names = o.machine.PermitReads() })
	if len(names) == 0 {
		return nil
	}
	began := time.Now()
	inUse, at, err := o.inUse(ctx, names)
	o.locked(func() {
		o.permitsTook = time.Since(began)
		if err == nil {
			o.clock = clock{at: at, seen: time.Now()}
			o.machine.Tick(at)
		}
		for _, name := range names {
			o.machine.TakePermits(name, inUse[name], err != nil)
		}
		o.match()
	})
	if err != nil {
		return o.retry(ctx, err)
	}
	return nil
}

// inUse reads the permits and tokens of limits that are in use, and the database's time.
func (o *office) inUse(ctx context.Context, names []string) (map[string]dispatch.InUse, time.Time, error) {
	var at time.Time
	rows, err := o.config.DB.Query(ctx, permitsSQL, pgarray.Of(names...))
	if err != nil {
		return nil, at, pgerr.Explain("read permits", err)
	}
	all := map[string]dispatch.InUse{}
	var name string
	var p dispatch.Permit
	var used *int64
	columns := []any{pgquery.Micros(&at), &name, &p.Value, (*string)(&p.Key.Kind), (*string)(&p.Key.BizID),
		(*int32)(&p.Version), &p.IsOpen, &used}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		u := all[name]
		switch {
		case used != nil:
			u.Starts = append(u.Starts, dispatch.Start{Value: p.Value, At: time.UnixMicro(*used), Tokens: 1})
		case name != "" && o.only.Has(p.Key):
			u.Permits = append(u.Permits, p)
		}
		u.At = at
		all[name] = u
		return nil
	})
	return all, at, pgerr.Explain("read permits", err)
}

// tidyPermits removes old permits, and has those in use read again, until ctx is done. While there is no limit, it
// executes no statement.
func (o *office) tidyPermits(ctx context.Context) error {
	var took time.Duration
	for read := time.Now(); ; {
		if err := loop.Sleep(ctx, max(tidyEvery, rest*took)); err != nil {
			return err
		}
		var isDue bool
		o.locked(func() {
			if isDue = o.hasLimits; isDue && time.Since(read) >= max(rereadEvery, rest*o.permitsTook) {
				read = time.Now()
				o.machine.RereadPermits()
				o.match()
			}
		})
		began := time.Now()
		if isDue {
			o.tidy(ctx, permitsRemoveSQL)
			o.tidy(ctx, tokensTidySQL)
		}
		took = time.Since(began)
	}
}

// tidy removes old rows by a statement, until none are left.
func (o *office) tidy(ctx context.Context, statement string) {
	for removed := tidyBatch; removed >= tidyBatch; {
		err := o.config.DB.QueryRow(ctx, statement, tidyBatch).Scan(&removed)
		if err != nil {
			if ctx.Err() == nil {
				o.limited.Warn(o.config.Logger, "cannot remove old permits", "error", err)
			}
			return
		}
	}
}
