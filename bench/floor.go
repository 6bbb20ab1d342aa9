package main

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/outbox"
)

// The floor is taskledger's pipeline without its promises: committed rows, a window between snapshots, JetStream with
// eleven headers and message ids, a pull consumer, heads, a grouped insert of outcomes, the relay of both events, a
// projection. It lacks leases, fences, retries, hooks, audits, shards and the order of late commits. It is a limit for
// the cost of such a pipeline, and no model for its correctness. It drains a backlog as fast as it can; at an even rate
// it works by its floorPace.

const (
	floorStream  = "FLOOR"
	floorSource  = "taskledger/0f0e0d0c-1111-2222-3333-444455556666"
	floorSubject = "floor.7." // the shard of all tasks

	floorInFlight = 4000 // messages without an acknowledgement
	floorBatch    = 2000 // messages whose heads are read at once
	floorBatches  = 3    // batches at once
)

// floor is the pipeline of the floor.
type floor struct {
	db *pgxpool.Pool
	nc *nats.Conn
	// pace is how the floor works at an even rate. The zero value drains a backlog.
	pace floorPace
	// handle is called for each task, all tasks of a batch at once. Default: none.
	handle func(ctx context.Context, bizID string)
	// transactions is how many tasks of a batch at once insert their business row and their outcome in a transaction
	// each. Default: the outcomes of a batch are one statement, and there are no business rows.
	transactions int
	// published and projected are called with numbers of messages and of succeeded tasks. Default: none.
	published, projected, succeeded func(int)
}

// migrateFloor creates the tables of the floor and the business table.
func migrateFloor(ctx context.Context, t *trial) error {
	if _, err := t.db.Exec(ctx, statement("floor_tables")); err != nil {
		return err
	}
	return createEffectTable(ctx, t)
}

// ensureStream creates the stream of the floor.
func (f *floor) ensureStream(ctx context.Context) error {
	js, err := jetstream.New(f.nc)
	if err != nil {
		return err
	}
	_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: floorStream, Subjects: []string{"floor.>"}, Duplicates: 2 * time.Minute, MaxAge: time.Hour,
	})
	return err
}

// start returns the snapshot at which a reader begins.
func (f *floor) start(ctx context.Context, reader string) (seen string, err error) {
	return seen, f.db.QueryRow(ctx, "select seen::text from floor.cursor where reader = $1", reader).Scan(&seen)
}

// floorEvent is an event as the relay reads it.
type floorEvent struct {
	position         int64
	version, attempt int
	name             string
	recordedAt       time.Time
	bizID            string
	data             []byte
}

// relay publishes the events of each window in order, and moves its cursor when all are acknowledged.
func (f *floor) relay(ctx context.Context) error {
	seen, err := f.start(ctx, "relay")
	if err != nil {
		return err
	}
	inbox := nats.NewInbox()
	var sent int64
	var acknowledged, awaited atomic.Int64
	reached := make(chan struct{}, 1)
	replies, err := f.nc.Subscribe(inbox, func(*nats.Msg) {
		if acknowledged.Add(1) != awaited.Load() {
			return
		}
		select {
		case reached <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer func() { _ = replies.Unsubscribe() }()
	await := func(inFlight int64) error {
		awaited.Store(sent - inFlight)
		for sent-acknowledged.Load() > inFlight {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-reached:
			}
		}
		return nil
	}
	rest, release, err := f.rest(ctx)
	if err != nil {
		return err
	}
	defer release()
	var moved time.Time
	for {
		until, events, err := f.window(ctx, seen)
		if err != nil {
			return err
		}
		seen = until
		if len(events) == 0 {
			if err := rest(ctx); err != nil {
				return err
			}
			continue
		}
		for i := range events {
			if err := f.nc.PublishMsg(events[i].message(inbox)); err != nil {
				return err
			}
			if sent++; sent%1000 == 0 {
				if err := await(floorInFlight); err != nil {
					return err
				}
			}
		}
		if err := await(0); err != nil {
			return err
		}
		if now := time.Now(); now.Sub(moved) >= f.pace.cursor {
			if _, err := f.db.Exec(ctx, statement("floor_move"), "relay", until); err != nil {
				return err
			}
			moved = now
		}
		if f.published != nil {
			f.published(len(events))
		}
		if f.pace.isEven() {
			if err := rest(ctx); err != nil {
				return err
			}
		}
	}
}

func (f *floor) window(ctx context.Context, seen string) (until string, events []floorEvent, err error) {
	rows, err := f.db.Query(ctx, statement("floor_window"), seen)
	if err != nil {
		return "", nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var position *int64
		var version, attempt *int
		var name, bizID *string
		var at *time.Time
		var data []byte
		if err := rows.Scan(&until, &position, &version, &attempt, &name, &at, &bizID, &data); err != nil {
			return "", nil, err
		}
		if position != nil {
			events = append(events, floorEvent{*position, *version, *attempt, *name, *at, *bizID, data})
		}
	}
	return until, events, rows.Err()
}

// message carries the headers that our messages carried when the floor was written, three more than now, so that the
// floor does not change.
func (e *floorEvent) message(reply string) *nats.Msg {
	version, subject := strconv.Itoa(e.version), string(kind.Name())+"/"+e.bizID
	id := subject + "/" + version + "@" + strconv.FormatInt(e.recordedAt.UnixMicro(), 10)
	return &nats.Msg{
		Subject: floorSubject + e.name + "." + string(kind.Name()), Reply: reply, Data: e.data,
		Header: nats.Header{
			nats.MsgIdHdr: {id + "#1"}, "ce-specversion": {"1.0"}, "ce-id": {id}, "ce-type": {"taskledger." + e.name},
			"ce-source": {floorSource}, "ce-subject": {subject},
			"ce-time":        {e.recordedAt.UTC().Format(time.RFC3339Nano)},
			"ce-taskversion": {version}, "ce-taskattempt": {strconv.Itoa(e.attempt)},
			"ce-taskposition": {strconv.FormatInt(e.position, 10)}, "biz-id": {e.bizID},
		},
	}
}

// work takes the messages that have arrived together, reads their heads, records the outcomes in one statement and
// acknowledges. When ctx is done, it finishes the messages that have arrived.
func (f *floor) work(ctx context.Context) error {
	js, err := jetstream.New(f.nc)
	if err != nil {
		return err
	}
	consumer, err := js.CreateOrUpdateConsumer(ctx, floorStream, jetstream.ConsumerConfig{
		Durable: "worker", FilterSubject: floorSubject + "enqueued." + string(kind.Name()),
		AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 20_000, AckWait: 30 * time.Second,
	})
	if err != nil {
		return err
	}
	arrived := make(chan jetstream.Msg, 10_000)
	consuming, err := consumer.Consume(func(m jetstream.Msg) { arrived <- m }, jetstream.PullMaxMessages(5000))
	if err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		consuming.Drain()
		<-consuming.Closed()
		close(arrived)
	}()
	if f.pace.isEven() {
		return f.workEvenly(context.WithoutCancel(ctx), arrived)
	}
	return concurrently(floorBatches, func(int) error {
		for m := range arrived {
			batch := []jetstream.Msg{m}
			batch = takeArrived(batch, arrived)
			if err := f.attempt(context.WithoutCancel(ctx), batch); err != nil {
				return err
			}
		}
		return context.Cause(ctx)
	})
}

// takeArrived adds the messages that have arrived to a batch.
func takeArrived(batch []jetstream.Msg, arrived <-chan jetstream.Msg) []jetstream.Msg {
	for len(batch) < floorBatch && len(arrived) > 0 {
		select {
		case m, ok := <-arrived:
			if ok {
				batch = append(batch, m)
			}
		default: // another goroutine took it
		}
	}
	return batch
}

// readHeads reads the heads of a batch and returns the biz_ids.
func (f *floor) readHeads(ctx context.Context, batch []jetstream.Msg) ([]string, error) {
	ids := bizIDs(batch)
	rows, err := f.db.Query(ctx, statement("floor_heads"), string(kind.Name()), ids)
	if err != nil {
		return nil, err
	}
	var head floorEvent
	fields := []any{&head.bizID, &head.version, &head.name, &head.recordedAt}
	_, err = pgx.ForEachRow(rows, fields, func() error { return nil })
	return ids, err
}

func bizIDs(batch []jetstream.Msg) []string {
	ids := make([]string, len(batch))
	for i, m := range batch {
		ids[i] = m.Headers().Get("biz-id")
	}
	return ids
}

// attempt handles a batch.
func (f *floor) attempt(ctx context.Context, batch []jetstream.Msg) error {
	ids, err := f.readHeads(ctx, batch)
	if err != nil {
		return err
	}
	if f.handle != nil {
		var running sync.WaitGroup
		for _, id := range ids {
			running.Go(func() { f.handle(ctx, id) })
		}
		running.Wait()
	}
	if f.transactions > 0 {
		err = f.succeedEach(ctx, ids)
	} else {
		_, err = f.db.Exec(ctx, statement("floor_succeed"), string(kind.Name()), ids)
	}
	if err != nil {
		return err
	}
	return f.acknowledge(batch)
}

func (f *floor) acknowledge(batch []jetstream.Msg) error {
	for _, m := range batch {
		if err := m.Ack(); err != nil {
			return err
		}
	}
	if f.succeeded != nil {
		f.succeeded(len(batch))
	}
	return nil
}

// succeedEach inserts the business row and the outcome of each task in a transaction of one round trip, as ours.
func (f *floor) succeedEach(ctx context.Context, ids []string) error {
	var next atomic.Int64
	return concurrently(f.transactions, func(int) error {
		conn, err := f.db.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		for i := next.Add(1); i <= int64(len(ids)); i = next.Add(1) {
			id := ids[i-1]
			err := inOneRoundTrip(ctx, conn.Conn(), id, statement("floor_succeed_one"), string(kind.Name()), id)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// floorProjections is the time between two windows of the projection in a drain.
const floorProjections = 50 * time.Millisecond

// project writes one row for each task of a window, in one transaction with its cursor.
func (f *floor) project(ctx context.Context) error {
	seen, err := f.start(ctx, "projector")
	if err != nil {
		return err
	}
	for {
		var finished int
		options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead}
		err := pgx.BeginTxFunc(ctx, f.db, options, func(tx pgx.Tx) error {
			var until string
			if err := tx.QueryRow(ctx, "select pg_current_snapshot()::text").Scan(&until); err != nil {
				return err
			}
			if err := tx.QueryRow(ctx, statement("floor_project"), seen, until).Scan(&finished); err != nil {
				return err
			}
			seen = until
			_, err := tx.Exec(ctx, statement("floor_move"), "projector", until)
			return err
		})
		if err != nil {
			return err
		}
		if f.projected != nil {
			f.projected(finished)
		}
		if err := sleep(ctx, cmp.Or(f.pace.projections, floorProjections)); err != nil {
			return err
		}
	}
}

// floorTransaction inserts a business row and a task, in one round trip as ours.
func floorTransaction(ctx context.Context, conn *pgx.Conn, id string) error {
	return inOneRoundTrip(ctx, conn, id, statement("floor_enqueue"), floorTask(id)...)
}

// floorTask returns the arguments of floor_enqueue.sql.
func floorTask(id string) []any { return []any{string(kind.Name()), id, 7, nil, string(args), nil} }

// inOneRoundTrip runs a transaction that inserts a business row and then executes one more statement. After an error
// the caller closes the connection.
func inOneRoundTrip(ctx context.Context, conn *pgx.Conn, id, sql string, args ...any) error {
	b := &pgx.Batch{}
	b.Queue("begin")
	b.Queue(statement("effect"), id)
	b.Queue(sql, args...)
	b.Queue("commit")
	return conn.SendBatch(ctx, b).Close()
}

func fillFloor(ctx context.Context, t *trial, n int) error { return fillFloorNamed(ctx, t, n, taskID) }

func fillFloorNamed(ctx context.Context, t *trial, n int, name func(i int) string) error {
	return batches(n, 2000, func(from, to int) error {
		ids := make([]string, 0, to-from)
		for i := from; i < to; i++ {
			ids = append(ids, name(i))
		}
		_, err := t.db.Exec(ctx, statement("floor_fill"), string(kind.Name()), ids, string(args))
		return err
	})
}

// drainFloor measures the drain of committed tasks until both events are relayed and the projection has caught up.
func drainFloor(ctx context.Context, t *trial, tasks int) error {
	f, err := newFloor(ctx, t)
	if err != nil {
		return err
	}
	published, projected := newCounter(2*tasks), newCounter(tasks)
	f.published, f.projected = published.add, projected.add
	before, err := fillBacklog(ctx, t, tasks, fillFloor)
	if err != nil {
		return err
	}
	begin := time.Now()
	failed := runFloor(ctx, t, f.relay, f.work, f.project)
	if err := awaitFloor(failed, published, projected); err != nil {
		return err
	}
	t.add(rate, float64(tasks)/time.Since(begin).Seconds(), "tasks/s")
	return before.add(ctx, t, tasks)
}

// drainFloorStream measures the drain of tasks that wait on the stream, until the outcomes are relayed and projected.
// With transactions, each task inserts its row and its outcome in a transaction of its own.
func drainFloorStream(ctx context.Context, t *trial, tasks, transactions int) error {
	f, err := newFloor(ctx, t)
	if err != nil {
		return err
	}
	f.transactions = transactions / floorBatches
	enqueued, published, projected := newCounter(tasks), newCounter(2*tasks), newCounter(tasks)
	f.published = func(n int) { enqueued.add(n); published.add(n) }
	f.projected = projected.add
	before, err := fillBacklog(ctx, t, tasks, fillFloor)
	if err != nil {
		return err
	}
	failed := runFloor(ctx, t, f.relay, f.project)
	if err := awaitFloor(failed, enqueued); err != nil {
		return err
	}
	begin := time.Now()
	failed = runFloor(ctx, t, f.work)
	if err := awaitFloor(failed, published, projected); err != nil {
		return err
	}
	t.add(rate, float64(tasks)/time.Since(begin).Seconds(), "tasks/s")
	return before.add(ctx, t, tasks)
}

// relayFloor measures the floor's relay of committed events.
func relayFloor(ctx context.Context, t *trial, events int) error {
	f, err := newFloor(ctx, t)
	if err != nil {
		return err
	}
	published := newCounter(events)
	f.published = published.add
	if err := errors.Join(fillFloor(ctx, t, events), checkpointAndAnalyze(ctx, t)); err != nil {
		return err
	}
	begin := time.Now()
	if err := awaitFloor(runFloor(ctx, t, f.relay), published); err != nil {
		return err
	}
	t.add(rate, float64(events)/time.Since(begin).Seconds(), "events/s")
	return checkMessages(ctx, f.nc, events)
}

// newFloor returns the floor in a fresh database and at a fresh broker.
func newFloor(ctx context.Context, t *trial) (*floor, error) {
	if err := migrateFloor(ctx, t); err != nil {
		return nil, err
	}
	address, err := broker(ctx, t, false)
	if err != nil {
		return nil, err
	}
	nc, err := outbox.Connect(address)
	if err != nil {
		return nil, err
	}
	t.nc = nc
	t.atEnd(func() error { nc.Close(); return nil })
	f := &floor{db: t.db, nc: nc}
	return f, f.ensureStream(ctx)
}

// runFloor runs parts of the floor until the trial ends, and returns where their errors arrive.
func runFloor(ctx context.Context, t *trial, parts ...func(context.Context) error) (failed <-chan error) {
	errs := make(chan error, len(parts))
	for _, run := range parts {
		t.atEnd(background(ctx, ignoreCanceled(func(ctx context.Context) error {
			err := run(ctx)
			errs <- err
			return err
		})))
	}
	return errs
}

// awaitFloor waits until all counters have reached their numbers.
func awaitFloor(failed <-chan error, counters ...*counter) error {
	for _, c := range counters {
		select {
		case err := <-failed:
			return errors.Join(errors.New("a part of the floor has ended"), err)
		case <-c.done:
		}
	}
	return nil
}

// ignoreCanceled drops the error of a part of the floor that was canceled.
func ignoreCanceled(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := run(ctx); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}
}
