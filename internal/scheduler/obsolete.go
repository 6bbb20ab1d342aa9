package scheduler

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgquery"
)

//go:embed sql/timers_obsolete.sql
var timersObsoleteSQL string

const (
	// obsoletePage is how many timers one statement reads.
	obsoletePage = 1000
	// obsoleteEvery is the pause after a page with few obsolete timers, and obsoleteRest the pause after the last
	// page. Pages with many obsolete timers take at most one part in obsoleteShare of the time.
	obsoleteEvery = 10 * time.Second
	obsoleteRest  = time.Minute
	obsoleteShare = 11
)

// obsolete removes the timers of tasks that have moved on, such as cancelled ones, long before they are due. It reads
// the timers that are not due yet, page by page, while there are timers. It is for the goroutine of run.
type obsolete struct {
	config Config
	wanted request
	last   dueTask // the last timer read; zero: a walk begins
}

// run works until ctx is done. It logs errors, and retries.
func (o *obsolete) run(ctx context.Context) {
	_ = loop.Steps{ // without Stop it returns nil
		Step: func(ctx context.Context) (time.Duration, error) {
			select {
			case <-o.wanted:
				return o.removePage(ctx)
			case <-ctx.Done():
				return 0, nil
			}
		},
		Failed: func(ctx context.Context, err error, in time.Duration) {
			o.config.Logger.WarnContext(ctx, "cannot remove obsolete timers; retrying", "error", err, "retry_in", in)
		},
		Backoff: loop.Backoff{Min: obsoleteEvery, Max: obsoleteRest},
	}.Run(ctx)
}

// removePage removes the obsolete timers of the next page. It returns the pause after it.
func (o *obsolete) removePage(ctx context.Context) (pause time.Duration, err error) {
	begun := time.Now()
	var n, removed int
	var last dueTask
	batch := &pgx.Batch{}
	batch.Queue(settingsSQL, lockTimeout(batchPatience), "off")
	batch.Queue(timersObsoleteSQL,
		pgquery.Time(o.last.at), string(o.last.key.Kind), string(o.last.key.BizID), int64(obsoletePage),
	).QueryRow(func(row pgx.Row) error {
		return row.Scan(&n, &removed, pgquery.Micros(&last.at), (*string)(&last.key.Kind), (*string)(&last.key.BizID))
	})
	if err := o.config.DB.SendBatch(ctx, batch).Close(); err != nil {
		return 0, err
	}
	if n < obsoletePage {
		o.last = dueTask{}
		return obsoleteRest, nil
	}
	o.last = last
	if removed < n/10 {
		return obsoleteEvery, nil
	}
	return loop.Rest(time.Since(begun), obsoleteShare, obsoleteEvery), nil
}
