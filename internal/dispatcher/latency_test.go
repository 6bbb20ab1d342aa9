package dispatcher_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/poolertest"
	"github.com/taskledger/taskledger/internal/servicetest"
)

// Behind a pooler nothing ends the sleep of an idle dispatcher early. With the greatest latency it renews its lease in
// time.
func TestTheGreatestLatency(t *testing.T) {
	t.Parallel()
	b := servicetest.New(t)
	behind := poolertest.Start(t, b.DB.Config().ConnString(), "session", 20)
	db := servicetest.Try(pgxpool.New(t.Context(), behind))(t)
	t.Cleanup(db.Close)
	d := servicetest.Try(dispatcher.New(dispatcher.Config{
		DB: db, NATS: b.Connect(), Latency: time.Second, Logger: b.Logger(slog.LevelInfo),
	}))(t)
	b.Start(d.Run)
	const epoch = `select coalesce(
		(select (l.detail->>'epoch')::integer from taskledger.lease l where l.name = 'dispatcher'), 0)`
	const wasIdle = `select exists (select from taskledger.lease l
		where l.name = 'dispatcher' and l.alive_until > l.since + interval '15 seconds')` // its sleep is the longest
	b.Await("an idle dispatcher", func() bool {
		return servicetest.One[bool](b, wasIdle) || servicetest.One[int](b, epoch) > 1
	})
	if n := servicetest.One[int](b, epoch); n != 1 {
		t.Errorf("epoch %d", n)
	}
}
