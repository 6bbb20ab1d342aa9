package feed

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/loop"
)

// pools maps the pools of this process to the shared state of their feeds.
var pools = struct {
	sync.Mutex

	shared map[*pgxpool.Pool]*poolState
}{shared: map[*pgxpool.Pool]*poolState{}}

// poolState is the shared state of the feeds of a pool.
type poolState struct {
	found *Findings
	users [2]int // by Use
	stop  func() // of the feed that reads for the others; nil: none
}

// Use is the use of shared [Findings].
type Use int

// The uses of [Shared].
const (
	ByService    Use = iota // relay, projector or dispatcher
	BySubscriber            // any other reader
)

// Shared returns the [Findings] of a pool, which all feeds in this process share. Every caller calls leave when its
// feeds have ended. While there are several subscribers, or one next to services, and no feed reports, Shared reads
// the ledger for them, by a feed without a cursor.
//
// It is safe for concurrent use.
func Shared(db *pgxpool.Pool, by Use) (found *Findings, leave func()) {
	pools.Lock()
	defer pools.Unlock()
	s := pools.shared[db]
	if s == nil {
		s = &poolState{found: &Findings{isOptional: true}}
		pools.shared[db] = s
	}
	s.users[by]++
	if s.stop == nil && s.needsReader() {
		s.begin(db)
	}
	return s.found, sync.OnceFunc(func() { s.leave(db, by) })
}

// needsReader reports whether a feed should read for all. Services alone share the dispatcher's feed, or little.
func (s *poolState) needsReader() bool { return s.users[BySubscriber]+min(s.users[ByService], 1) >= 2 }

// leave ends the use of one user.
func (s *poolState) leave(db *pgxpool.Pool, by Use) {
	pools.Lock()
	var stop func()
	if s.users[by]--; !s.needsReader() {
		stop, s.stop = s.stop, nil
	}
	if s.users == [2]int{} {
		delete(pools.shared, db)
	}
	pools.Unlock()
	if stop != nil {
		stop()
	}
}

// begin starts the feed that reads for all.
func (s *poolState) begin(db *pgxpool.Pool) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.read(ctx, db)
	}()
	s.stop = func() {
		cancel()
		<-ended
	}
}

const (
	sharedGather = 5 * time.Millisecond
	sharedIdle   = 250 * time.Millisecond
)

// read reads for all until ctx is done, while no other feed reports. The other feeds log outages.
func (s *poolState) read(ctx context.Context, db *pgxpool.Pool) {
	delay := loop.Backoff{Min: maxIdle, Max: time.Second}
	for {
		err := s.tail(ctx, db)
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
func (s *poolState) tail(ctx context.Context, db *pgxpool.Pool) error {
	s.found.mu.Lock()
	isSilent := s.found.isSilent()
	s.found.mu.Unlock()
	if !isSilent {
		return loop.Sleep(ctx, followFor)
	}
	f, err := Tail(ctx, db, &Options{Gather: sharedGather, Idle: sharedIdle, Reports: s.found})
	defer s.found.end(f)
	for err == nil && s.found.isOf(f) {
		var page Page
		if page, err = f.Look(ctx); err == nil {
			page.Release()
		}
	}
	return err
}
