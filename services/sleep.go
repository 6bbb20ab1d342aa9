package services

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/broker"
	"github.com/taskledger/taskledger/internal/idle"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/stream"
)

// defaultSleepAtMost is the longest sleep.
const defaultSleepAtMost = time.Hour

// Bounds of the time between two looks at a ledger that is not idle.
const (
	minLook = 10 * time.Millisecond
	maxLook = 15 * time.Second
)

// sleeper runs services until their ledger is idle, closes all connections to the database, and sleeps until something
// wakes it. Nothing of a service knows about it: services are stopped and started, as by a restart of the process.
//
// A task cannot be missed between the decision and the sleep: once all services have ended, the sleeper looks again, in
// a snapshot beside no open transaction. A task that this snapshot does not show was enqueued later, and the
// subscription to the message that follows it is older.
type sleeper struct {
	config  Config
	server  *broker.Server // nil: none
	reports *reporter
	log     *slog.Logger
	ended   <-chan struct{} // closed when run must end
	metrics http.Handler    // of the process, while the services sleep; nil without an HTTP server
	webEnd  chan struct{}   // closed when the HTTP server has ended
	nc      *nats.Conn      // receives the messages; nil before the first look

	message chan struct{} // a message came, or one may have been lost; has room for one
	use     chan struct{} // a request needs the services; has room for one
	served  chan struct{} // a request was served, of which no other process knows; has room for one

	reported atomic.Pointer[time.Time] // when the last pass of the alarms that left no news began
	calm     time.Time                 // since when a look has found nothing to do; for watch

	mu       sync.Mutex
	isAwake  bool
	changed  chan struct{} // closed when isAwake changes
	requests int           // that are being served
	used     time.Time     // when the last of them ended, or the services were started
	polls    map[*poll]struct{}
	polling  sync.WaitGroup      // of polls
	admitted map[caller]struct{} // workers whose polls were answered
}

// newSleeper returns a sleeper whose run ends when ctx is done.
func newSleeper(ctx context.Context, c Config, server *broker.Server, reports *reporter) *sleeper {
	return &sleeper{
		config: c, server: server, reports: reports, log: c.Logger.With("service", "sleep"),
		ended: ctx.Done(), webEnd: make(chan struct{}), message: make(chan struct{}, 1), use: make(chan struct{}, 1),
		served: make(chan struct{}, 1), isAwake: true, changed: make(chan struct{}),
		polls: make(map[*poll]struct{}), admitted: make(map[caller]struct{}),
	}
}

// run runs the services whenever the ledger needs them, and web all the time.
func (s *sleeper) run(ctx context.Context, services []service, web *service) {
	go func() {
		defer close(s.webEnd)
		if web != nil {
			s.config.keep(ctx, *web)
		}
	}()
	for ctx.Err() == nil {
		s.wake()
		s.work(ctx, services)
		if ctx.Err() == nil {
			s.sleep(ctx)
		}
	}
	<-s.webEnd
	if s.server != nil {
		s.server.Close()
	}
	if s.nc != nil {
		s.nc.Close()
	}
}

// work runs the services until the ledger is idle or ctx is done.
func (s *sleeper) work(ctx context.Context, services []service) {
	awake, end := context.WithCancel(ctx)
	defer end()
	serving, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var server, watching sync.WaitGroup
	if s.server != nil {
		server.Go(func() {
			s.config.keep(serving, service{"nats", func(ctx context.Context, _ *slog.Logger) error {
				return s.server.Run(ctx)
			}})
		})
	}
	watching.Go(func() {
		s.watch(awake)
		end()
	})
	s.config.runAll(awake, services)
	watching.Wait()
	if ctx.Err() == nil {
		s.polling.Wait() // a poll that goes on would begin a session again
		if s.config.API != nil {
			s.config.API.rest()
		}
		stop(broker.ErrAsleep)
	} else {
		<-s.webEnd // requests of workers need NATS
		stop(nil)
	}
	server.Wait()
}

// watch returns when the ledger is idle or ctx is done.
func (s *sleeper) watch(ctx context.Context) {
	for wait := s.lookEvery(); s.pause(ctx, wait) == nil; {
		if wait = s.untilIdle(ctx); wait == 0 && s.closeGate() {
			return
		}
	}
}

// lookEvery returns the time between two looks at a ledger that is not idle.
func (s *sleeper) lookEvery() time.Duration { return min(max(s.config.SleepAfter/4, minLook), maxLook) }

// pause waits for d. It wakes other processes after requests: these may have enqueued tasks that only workers of a
// process that sleeps can do.
func (s *sleeper) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return nil
		case <-s.served:
			if s.isConnected(ctx) {
				s.tellOthers(ctx)
			} else {
				signal(s.served)
			}
			if err := loop.Sleep(ctx, min(s.config.SleepAfter/4, time.Second)); err != nil {
				return err
			}
		}
	}
}

// untilIdle returns when to look again; 0: the ledger is idle.
func (s *sleeper) untilIdle(ctx context.Context) time.Duration {
	after := s.config.SleepAfter
	quiet, isUsed := s.quiet()
	reason, eventAge := s.need(ctx, isUsed || quiet < after)
	switch {
	case !isUsed && quiet < after:
		return min(after-quiet, s.lookEvery())
	case reason != "":
		s.log.DebugContext(ctx, "the services do not sleep yet", "reason", reason)
		return s.lookEvery()
	case eventAge < after:
		return min(after-eventAge, s.lookEvery())
	}
	return 0
}

// need returns why the services must not sleep, or "", and the age of the newest event. It wakes other processes if
// there are tasks, which only their workers may do.
func (s *sleeper) need(ctx context.Context, isUsed bool) (reason string, eventAge time.Duration) {
	if !s.isConnected(ctx) {
		return "NATS is not connected", 0
	}
	state, err := s.look(ctx)
	if err != nil {
		return err.Error(), 0
	}
	if state.Reason == idle.HasTasks {
		s.tellOthers(ctx)
	}
	if isUsed {
		return "a request is being served", 0
	}
	held, err := s.reports.critical(ctx)
	switch {
	case err != nil:
		return err.Error(), 0
	case len(held) > 0:
		return "a critical condition holds", 0
	case !s.hasReported(state):
		return "news is not reported by an alarm yet", 0
	case state.Reason == "" && state.Next < s.config.SleepAfter:
		return "a timer or a schedule is due soon", 0
	}
	return state.Reason, state.Quiet
}

// hasReported reports whether the alarms have found no more news since the ledger has had nothing to do.
func (s *sleeper) hasReported(state idle.State) bool {
	if s.config.Alarms == nil {
		return true
	}
	if state.Reason != "" || s.calm.IsZero() || state.Quiet < time.Since(s.calm) {
		s.calm = time.Now()
	}
	at := s.reported.Load()
	return at != nil && at.After(s.calm)
}

// look reads whether the ledger needs the services.
func (s *sleeper) look(ctx context.Context) (idle.State, error) {
	ctx, cancel := context.WithTimeout(ctx, maxLook)
	defer cancel()
	readers := idle.Readers{Relay: !s.config.StreamOff, Seal: s.config.Seal != nil}
	return idle.Look(ctx, s.config.DB, readers)
}

// quiet returns the time since a request was served, and whether one is being served.
func (s *sleeper) quiet() (since time.Duration, isUsed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.used), s.requests > 0
}

// isConnected reports whether messages arrive that wake the services. It connects first. The end of a connection counts
// as a message, because one may be lost, and a server that sleeps too may be gone.
func (s *sleeper) isConnected(ctx context.Context) bool {
	if s.nc != nil && s.nc.IsClosed() {
		s.nc = nil
	}
	if s.nc == nil {
		nc, err := s.config.NATS(nats.ErrorHandler(ignoreErrors), nats.NoEcho(),
			nats.DisconnectErrHandler(func(*nats.Conn, error) { signal(s.message) }),
			nats.ReconnectHandler(func(*nats.Conn) { signal(s.message) }))
		if err != nil {
			return false
		}
		if _, err := nc.Subscribe(stream.PrefixOf(nc).Wake(), func(*nats.Msg) { signal(s.message) }); err != nil {
			nc.Close()
			return false
		}
		s.nc = nc
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return s.nc.FlushWithContext(ctx) == nil
}

// signal fills a channel that has room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep sleeps unless the ledger needs the services after all.
func (s *sleeper) sleep(ctx context.Context) {
	state, err := s.look(ctx)
	if err != nil || state.Reason != "" || state.Quiet < s.config.SleepAfter {
		s.log.InfoContext(ctx, "the services do not sleep", "reason", cmp.Or(state.Reason, "a new event"),
			"error", err)
		return
	}
	s.endSessions()
	most := cmp.Or(s.config.SleepAtMost, defaultSleepAtMost)
	s.log.InfoContext(ctx, "the services sleep", "expires_in", min(state.Next, most))
	timer := time.NewTimer(min(state.Next, most))
	defer timer.Stop()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for reason := ""; reason == ""; {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			s.endSessions()
			continue
		case <-s.message:
			reason = "a message, or the end of the connection to NATS"
		case <-s.use:
			reason = "an HTTP request"
			s.tellOthers(ctx)
		case <-timer.C:
			reason = "the time"
		}
		s.log.InfoContext(ctx, "the services wake", "reason", reason)
	}
}

// endSessions ends the sessions of all pools. Some may be left by work that ends late, such as checks of the console.
func (s *sleeper) endSessions() {
	for _, db := range s.config.pools() {
		if db.Stat().TotalConns() > 0 {
			db.Reset()
		}
	}
}

// tellOthers wakes the processes of the ledger that sleep: one of them may run the NATS server, or have the workers.
func (s *sleeper) tellOthers(ctx context.Context) {
	if err := s.nc.Publish(stream.PrefixOf(s.nc).Wake(), nil); err != nil {
		s.log.WarnContext(ctx, "cannot wake other processes", "error", err)
	}
}
