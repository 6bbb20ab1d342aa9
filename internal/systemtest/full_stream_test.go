package systemtest_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
	"github.com/taskledger/taskledger/workers/reconciler"
)

// parcelTypo is a kind that has no workers at first.
var parcelTypo = ledger.MustKind[struct{}]("parcel.sned")

// A stream that is too small for all messages stops no kind that has workers, whatever holds its first message. A task
// whose message was purged runs once its kind has workers.
func TestFullStreamStopsNoKind(t *testing.T) {
	tests := []struct {
		name string
		hold func(d *depot)
	}{
		{name: "change of a schedule", hold: func(d *depot) {
			hourly := periodic.Schedule{Name: "hourly", Kind: "parcel.report", Every: time.Hour}
			if _, err := periodic.Apply(d.t.Context(), d.db, []periodic.Schedule{hourly}, nil); err != nil {
				d.t.Fatal(err)
			}
		}},
		{name: "kind without workers", hold: func(d *depot) { d.enqueue(parcelTypo, "typo") }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newDepot(t)
			d.start("relay", func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
				return outbox.New(outbox.Config{
					DB: db, NATS: nc, Logger: log, LeaseTTL: time.Second, CheckEvery: time.Second,
					Stream: outbox.StreamConfig{MaxBytes: 256 << 10},
				})
			})
			d.start("projector", newProjector)
			d.start("reconciler", func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
				return reconciler.New(reconciler.Config{
					DB: db, NATS: nc, Logger: log, Every: 100 * time.Millisecond, Grace: time.Second,
				})
			})
			d.start("sends", sends)
			test.hold(d)
			const rounds, tasks = 3, 500 // the messages of each round take more than the room
			for round := range rounds {
				entries := make([]ledger.Entry, tasks)
				for i := range entries {
					id := ledger.BizID(fmt.Sprintf("%d-%d", round, i))
					entries[i] = ledger.Entry{Key: ledger.Key{Kind: parcel.Name(), BizID: id}}
				}
				if _, err := ledger.EnqueueMany(t.Context(), d.db, entries); err != nil {
					t.Fatal(err)
				}
				d.await("every parcel of the round to be sent", func() bool {
					sent := d.count(`select count(distinct biz_id) from effect where kind = 'parcel.send'`)
					return sent == (round+1)*tasks
				})
			}
			d.start("late workers", func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
				p, err := workers.New(workers.Config{DB: db, NATS: nc, Logger: log})
				if err != nil {
					return nil, err
				}
				return p, workers.Register(p, parcelTypo,
					func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ struct{}) error {
						return insertEffect(ctx, tx, job)
					}, nil)
			})
			d.enqueued.Add(rounds * tasks)
			if test.name == "change of a schedule" {
				return // its task stays as it is
			}
			d.allDone()
		})
	}
}
