package systemtest_test

import (
	"fmt"
	"testing"
	"time"
)

// PostgreSQL stops and restarts, by shutdown and by SIGKILL, under a relay, a projector and workers
// while tasks are being enqueued. Each task has exactly one effect, and the projection equals the events.
func TestPostgresRestartsUnderEverything(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	d.startServing()
	for i := range 2 {
		d.start(fmt.Sprintf("worker-%d", i+1), sends)
	}
	stop := make(chan struct{})
	producers := d.produce(stop, time.Millisecond, parcel, parcel, parcel)
	shutdown := func() error { return d.pg.Stop(t.Context()) }
	for i, end := range []func() error{shutdown, d.pg.Kill, shutdown, d.pg.Kill} {
		before := d.count(`select count(*) from effect`)
		d.await("effects between the outages", func() bool {
			return d.count(`select count(*) from effect`) > before+100
		})
		if err := end(); err != nil {
			t.Fatalf("outage %d: %v", i+1, err)
		}
		if err := d.pg.Restart(t.Context()); err != nil {
			t.Fatalf("outage %d: %v", i+1, err)
		}
	}
	close(stop)
	producers.Wait()
	d.allDone()
	if tasks, effects := int(d.enqueued.Load()), d.count(`select count(*) from effect`); effects != tasks {
		t.Errorf("%d effects of %d tasks", effects, tasks)
	}
}
