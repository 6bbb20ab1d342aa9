// Package bench measures the main path on servers of its own, with fsync on: enqueue, relay,
// drain, latency, WAL. All parts run in this one process, the servers beside it, on whatever
// machine this is: the figures are for comparing with each other.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/migrations"
	"github.com/taskledger/taskledger/outbox"
)

// Settings are PostgreSQL's, beside the defaults.
var Settings = map[string]string{"shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "15min"}

// Config says what to measure.
type Config struct {
	Only  []string      // names of measures; none: all
	Scale float64       // of the sizes; 0: 1
	Lasts time.Duration // of the measures that run for a time; 0: 8 s
	View  io.Writer     // where progress is told
}

// Figure is one result.
type Figure struct {
	Measure string  `json:"measure"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
}

// Report is what was measured, and on what.
type Report struct {
	Go       string            `json:"go"`
	Cores    int               `json:"cores"`
	Settings map[string]string `json:"settings"`
	Figures  []Figure          `json:"figures"`
}

type measure struct {
	name string
	run  func(ctx context.Context, b *bench) error
}

var measures = []measure{
	{"enqueue", measureEnqueue},
	{"relay", measureRelay},
	{"drain-at-least-once", measureDrainAtLeastOnce},
	{"drain-exactly-once", measureDrainExactlyOnce},
	{"latency", measureLatency},
	{"timers", measureTimers},
}

// Names returns the names of the measures.
func Names() []string {
	var names []string
	for _, m := range measures {
		names = append(names, m.name)
	}
	return names
}

// Run measures. Each measure has a database and a stream to itself.
func Run(ctx context.Context, c Config) (Report, error) {
	if c.Scale == 0 {
		c.Scale = 1
	}
	if c.Lasts == 0 {
		c.Lasts = 8 * time.Second
	}
	for _, name := range c.Only {
		if !slices.Contains(Names(), name) {
			return Report{}, fmt.Errorf("no measure %q: there are %v", name, Names())
		}
	}
	r := Report{Go: runtime.Version(), Cores: runtime.NumCPU(), Settings: Settings}
	for _, m := range measures {
		if len(c.Only) > 0 && !slices.Contains(c.Only, m.name) {
			continue
		}
		_, _ = fmt.Fprintf(c.View, "%s …\n", m.name)
		if err := runOne(ctx, c, m, &r); err != nil {
			return r, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return r, nil
}

// bench is one measure's own servers.
type bench struct {
	config Config
	report *Report
	db     *pgxpool.Pool
	nc     *nats.Conn
	url    func(database string) string
	fired  fired // by the schedulers of the measure of timers
}

func runOne(ctx context.Context, c Config, m measure, r *Report) (err error) {
	dir, err := os.MkdirTemp("", "taskledger-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o711); err != nil { // the server's user must get in
		return err
	}
	postgres, err := pgserver.Start(ctx, pgserver.Config{Dir: filepath.Join(dir, "postgres"), Settings: Settings})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, postgres.Close()) }()
	broker, err := natsserver.Start(natsserver.Config{Dir: filepath.Join(dir, "nats")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	if err := migrations.Up(ctx, postgres.URL("postgres")); err != nil {
		return err
	}
	pool, err := pgxpool.ParseConfig(postgres.URL("postgres"))
	if err != nil {
		return err
	}
	pool.MaxConns = 64
	b := &bench{config: c, report: r, url: postgres.URL}
	if b.db, err = pgxpool.NewWithConfig(ctx, pool); err != nil {
		return err
	}
	defer b.db.Close()
	if b.nc, err = outbox.Connect(broker.URL()); err != nil {
		return err
	}
	defer b.nc.Close()
	if _, err := b.db.Exec(ctx, `create table effect (id bigint generated always as identity primary key, biz_id text not null)`); err != nil {
		return err
	}
	return m.run(ctx, b)
}

func (b *bench) add(measure string, value float64, unit string) {
	b.report.Figures = append(b.report.Figures, Figure{measure, value, unit})
	_, _ = fmt.Fprintf(b.config.View, "  %-44s %12.1f %s\n", measure, value, unit)
}

func (b *bench) size(n int) int { return max(1, int(float64(n)*b.config.Scale)) }

// walBytes is how much WAL the server has written.
func (b *bench) walBytes(ctx context.Context) (n float64, err error) {
	err = b.db.QueryRow(ctx, `select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::double precision`).Scan(&n)
	return n, err
}
