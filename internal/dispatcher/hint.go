package dispatcher

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/dispatch"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/only"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/hinted.sql
var hintedSQL string

const (
	// maxHints is the maximum number of events that one statement reads. Windows deliver the others.
	maxHints = 100
	// listenRetry is the pause after the loss of a listening connection.
	listenRetry = time.Second
)

// listen reads enqueued events as soon as their transactions notify, until ctx is done. A notification is only a hint:
// any login of the database can send one, and it may be late. The task comes from the ledger.
func (o *office) listen(ctx context.Context) error {
	for {
		err := o.takeHints(ctx)
		o.wake.SetListening(false)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil { // notifications cannot arrive
			<-ctx.Done()
			return context.Cause(ctx)
		}
		o.config.Logger.WarnContext(ctx, "cannot listen for enqueued tasks; polling", "error", err)
		if err := loop.Sleep(ctx, listenRetry); err != nil {
			return err
		}
	}
}

// takeHints does the work of listen on one connection. It returns nil if notifications cannot arrive.
func (o *office) takeHints(ctx context.Context) error {
	pooled, err := o.config.DB.Acquire(ctx)
	if err != nil {
		return pgerr.Explain("listen for events", err)
	}
	conn := pooled.Hijack()
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	isListening, err := feed.Listen(ctx, conn)
	if err != nil || !isListening {
		return err
	}
	o.wake.SetListening(true)
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return pgerr.Explain("listen for events", err)
		}
		positions := []ledger.Position{o.hinted(n.Payload)}
		for len(positions) < maxHints {
			if n, err = conn.WaitForNotification(alreadyDone); err != nil {
				break // all that have arrived are taken
			}
			positions = append(positions, o.hinted(n.Payload))
		}
		if err := o.readHinted(ctx, conn, positions); err != nil {
			return err
		}
	}
}

// alreadyDone is a context with which a connection returns the notifications that it has read, and waits for none.
var alreadyDone = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// hinted returns the position that a notification names. It returns 0 if the notification names none, because there
// are other events. It wakes the feed at once, or later for the feeds that follow.
func (o *office) hinted(payload string) ledger.Position {
	p, err := strconv.ParseInt(payload, 10, 64)
	if err != nil || p <= 0 {
		o.wake.Signal()
		return 0
	}
	o.wake.Hint()
	return ledger.Position(p)
}

// readHinted gives out the tasks that were enqueued by the events at positions, unless the feed has delivered these
// events. If the feed delivers events during the read, readHinted reads once more.
func (o *office) readHinted(ctx context.Context, conn *pgx.Conn, positions []ledger.Position) error {
	var list pgarray.Builder
	isEmpty := true
	for _, p := range positions {
		if p > 0 {
			list.AddInt(int64(p))
			isEmpty = false
		}
	}
	for try := 0; try < 2 && !isEmpty; try++ {
		var applied int64
		var seen string
		o.locked(func() { applied, seen = o.machine.Applied(), o.seen })
		if seen == "" {
			return nil
		}
		tasks, err := readHinted(ctx, conn, o.only, list.String(), seen)
		if err != nil {
			return err
		}
		var isTaken bool
		o.locked(func() {
			if isTaken = o.seen != "" && o.machine.Hint(applied, tasks); isTaken {
				o.match()
			}
		})
		if isTaken {
			return nil
		}
	}
	return nil
}

func readHinted(ctx context.Context, conn *pgx.Conn, only *only.Task, positions, seen string) ([]dispatch.Task, error) {
	rows, err := conn.Query(ctx, hintedSQL, positions, seen, int64(maxContent))
	if err != nil {
		return nil, pgerr.Explain("read hinted tasks", err)
	}
	var tasks []dispatch.Task
	var h headRow
	_, err = pgx.ForEachRow(rows, h.columns(), func() error {
		if t := h.head().Task; only.Has(t.Key) {
			tasks = append(tasks, t)
		}
		return nil
	})
	return tasks, pgerr.Explain("read hinted tasks", err)
}
