package feed

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/loop"
)

// together maps the pools of this process to the shared state of their feeds.
var together = struct {
	sync.Mutex

	byPool map[*pgxpool.Pool]*reading
}{byPool: map[*pgxpool.Pool]*reading{}}

// reading is the shared state of the feeds of a pool.
type reading struct {
	found *Findings
	users int
	stop  func() // of the feed that reads for the others; nil: none
}

// Together returns the [Findings] of a pool, which all callers in this process share. Every caller calls leave when
// its feeds have ended. While there are several callers and none of their feeds reports, Together reads the ledger for
// them, by a feed without a cursor.
//
// It is safe for concurrent use.
func Together(db *pgxpool.Pool) (found *Findings, leave func()) {
	together.Lock()
	defer together.Unlock()
	r := together.byPool[db]
	if r == nil {
		r = &reading{found: &Findings{isOptional: true}}
		together.byPool[db] = r
	}
	if r.users++; r.users == 2 {
		r.begin(db)
	}
	return r.found, sync.OnceFunc(func() { r.leave(db) })
}

// leave ends the use of one user.
func (r *reading) leave(db *pgxpool.Pool) {
	together.Lock()
	var stop func()
	if r.users--; r.users == 1 {
		stop, r.stop = r.stop, nil
	}
	if r.users == 0 {
		delete(together.byPool, db)
	}
	together.Unlock()
	if stop != nil {
		stop()
	}
}

// begin starts the feed that reads for all.
func (r *reading) begin(db *pgxpool.Pool) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.read(ctx, db)
	}()
	r.stop = func() {
		cancel()
		<-ended
	}
}

const (
	togetherGather = 5 * time.Millisecond
	togetherIdle   = 250 * time.Millisecond
)

// read reads for all until ctx is done, while no other feed reports. The other feeds log outages.
func (r *reading) read(ctx context.Context, db *pgxpool.Pool) {
	delay := loop.Backoff{Min: maxIdle, Max: time.Second}
	for {
		err := r.tail(ctx, db)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			delay.Reset()
		}
		if loop.Sleep(ctx, delay.Next()) != nil {
			return
		}
	}
}

// tail reads until an error, or until another feed reports.
func (r *reading) tail(ctx context.Context, db *pgxpool.Pool) error {
	r.found.mu.Lock()
	isSilent := r.found.isSilent()
	r.found.mu.Unlock()
	if !isSilent {
		return loop.Sleep(ctx, followFor)
	}
	f, err := Tail(ctx, db, &Options{Gather: togetherGather, Idle: togetherIdle, Reports: r.found})
	defer r.found.end(f)
	for err == nil && r.found.isOf(f) {
		var page Page
		if page, err = f.Look(ctx); err == nil {
			page.Release()
		}
	}
	return err
}
