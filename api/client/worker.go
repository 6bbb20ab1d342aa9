package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
)

// WorkOptions configures [Client.Work].
type WorkOptions struct {
	Kinds []ledger.Kind // of the tasks. Required.
	// Handle does the work of a task, in a goroutine of its own, and returns its result, which becomes JSON. An error
	// fails the attempt; a [*FailError] or a [*SnoozeError] decides how the task continues. Its context is done when
	// the attempt is over: then its outcome does not count. Required.
	Handle func(ctx context.Context, t WorkTask) (result any, err error)

	Name      string // for people. Default: the host.
	Guarantee string // at least once, or at most once. Default: at least once.
	Slots     int    // tasks at a time. Default: 8.
	// Timeout is the time that an attempt may take. Default: 15 min.
	Timeout time.Duration
	// Logger receives warnings, such as a kind that never had a task. Default: [slog.Default].
	Logger *slog.Logger
	// StopTimeout is how long handlers may continue once ctx is done. Default: 10 s.
	StopTimeout time.Duration
}

// WorkTask is a task that a worker was given.
type WorkTask struct {
	ledger.Key
	Version ledger.Version // of the event that made the task available
	Attempt ledger.Attempt
	// Args are the args as they were enqueued, JSON or binary. They are nil for a task without args.
	Args                    json.RawMessage
	Priority                ledger.Priority
	AvailableAt             time.Time
	FinishBy                time.Time // zero without a deadline
	Timeout                 time.Duration
	Traceparent, Tracestate string

	attempt *attempt
}

func newWorkTask(t wire.Task, a *attempt) WorkTask {
	args := t.Args
	if t.ArgsBase64 != nil {
		args = t.ArgsBase64
	}
	return WorkTask{
		Key: ledger.Key{Kind: t.Kind, BizID: t.BizID}, Version: t.Version, Attempt: t.Attempt, Args: args,
		Priority: t.Priority, AvailableAt: t.AvailableAt, FinishBy: t.FinishBy,
		Timeout:     time.Duration(t.Timeout * float64(time.Second)),
		Traceparent: t.Traceparent, Tracestate: t.Tracestate, attempt: a,
	}
}

// offer identifies the event that made a task available. If the process that gave the task is gone, the task may come
// again under another fence, though the offer is the same: nothing has ended the attempt.
type offer struct {
	ledger.Key
	version ledger.Version
	at      int64 // when the event was recorded, in microseconds
	n       int   // 0 unless earlier attempts of the offer still run, whose outcomes do not count
}

// first returns the offer without the number of its attempt.
func (o offer) first() offer { o.n = 0; return o }

// attempt is a task at work.
type attempt struct {
	offer  offer
	cancel context.CancelCauseFunc
	isOver func() bool
	ref    atomic.Pointer[wire.AttemptRef] // as it was given last
}

// FailError is the error of a handler that decides how its task continues.
type FailError struct {
	Err       error
	Permanent bool           // the task is dead
	RetryIn   *time.Duration // Default: by the retry policy.
	Safe      bool           // at most once: nothing has happened, so the task may be tried again
}

func (e *FailError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *FailError) Unwrap() error { return e.Err }

// SnoozeError is the error of a handler that postpones its task, which is not a failure.
type SnoozeError struct{ In time.Duration }

func (e *SnoozeError) Error() string { return fmt.Sprintf("snoozed for %s", e.In) }

// ErrAttemptEnded is the cause of the end of a handler's context if its attempt is over: the task was cancelled, its
// time is up, or another worker has it.
var ErrAttemptEnded = errors.New("the attempt has ended")

// worker is a call of [Client.Work].
type worker struct {
	client  *Client
	options WorkOptions
	session string
	slots   chan struct{} // holds a token for each task at work
	reports chan struct{} // holds a token for each outcome that the server has not confirmed

	done sync.WaitGroup // of handlers and their reports

	mu       sync.Mutex    // guards the fields below
	every    time.Duration // between heartbeats
	held     map[offer]*attempt
	unsent   map[offer]outcome // of handlers that have returned, until they are recorded or forgotten
	finished []finish          // not sent yet
	isBusy   bool              // a goroutine sends them
}

// outcome is what a handler has returned.
type outcome struct {
	result any
	err    error
}

// remembered is how long an outcome is kept that the server has not recorded. If the offer comes again, the outcome is
// sent under its newer fence, so that no effect is repeated.
const remembered = 30 * time.Second

// finish is a success to be sent. answer gets one value.
type finish struct {
	body   wire.Finish
	answer chan<- error
}

// Work takes tasks until ctx is done, by the protocol of docs/work-over-http.md. Then it waits for the handlers, gives
// back the tasks whose handlers have not returned within StopTimeout, and returns nil. It continues through outages of
// the server. It returns an error if the options are invalid, or a [*Problem] if the server refuses the worker.
func (c *Client) Work(ctx context.Context, o WorkOptions) error {
	if len(o.Kinds) == 0 || o.Handle == nil {
		return errors.New("client: Kinds and Handle are required")
	}
	if o.Slots == 0 {
		o.Slots = 8
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = 10 * time.Second
	}
	if o.Name == "" {
		o.Name = hostName()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	w := &worker{
		client: c, options: o, session: rand.Text(), slots: make(chan struct{}, o.Slots), every: time.Second,
		reports: make(chan struct{}, 4*o.Slots), held: make(map[offer]*attempt),
		unsent: make(map[offer]outcome),
	}
	handlers, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	beating, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go w.beat(beating)
	err := w.ask(ctx, handlers)
	ended := make(chan struct{})
	go func() { w.done.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(o.StopTimeout):
		cancel(ErrAttemptEnded)
	}
	bounded, end := context.WithTimeout(beating, o.StopTimeout)
	defer end()
	releaseErr := c.do(bounded, http.MethodPost, "/v1/work:release", wire.Release{Session: w.session}, &wire.Released{})
	if err == nil && ctx.Err() == nil {
		err = releaseErr
	}
	return err
}

// hostName returns the name of the host, with the characters of a worker's name.
func hostName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		return "worker"
	}
	return strings.Map(func(c rune) rune {
		if strings.ContainsRune("._@+-", c) || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
			return c
		}
		return '-'
	}, host[:min(len(host), 128)])
}

// ask takes tasks until ctx is done.
func (w *worker) ask(ctx, handlers context.Context) error {
	ask := wire.Ask{Worker: w.options.Name, Session: w.session, Kinds: w.options.Kinds, Guarantee: w.options.Guarantee,
		Timeout: w.options.Timeout.Seconds(), Protocol: wire.Protocol}
	warned := map[string]bool{}
	for {
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		<-w.slots
		ask.Limit = min(100, cap(w.slots)-len(w.slots))
		var got wire.Asked
		err := w.call(ctx, "", ask, &got)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		ask.Received = got.Batch
		w.mu.Lock()
		w.every = time.Duration(got.HeartbeatEvery * float64(time.Second))
		w.mu.Unlock()
		for _, k := range got.UnknownKinds {
			if !warned[k.Detail] { // with similar kinds once there are some
				w.options.Logger.WarnContext(ctx, "the worker waits for a kind without tasks", "kind", string(k.Kind),
					"hint", k.Detail)
			}
			warned[k.Detail] = true
		}
		for _, t := range got.Tasks {
			w.begin(handlers, t)
		}
	}
}

// call repeats a call until the server answers, and may not answer otherwise later.
func (w *worker) call(ctx context.Context, name string, body, into any) error {
	for n := 0; ; n++ {
		err := w.client.do(ctx, http.MethodPost, "/v1/work"+name, body, into)
		var p *Problem
		isProblem := errors.As(err, &p)
		mayPass := isProblem && (p.Status >= 500 || p.Status == http.StatusTooManyRequests ||
			p.Status == http.StatusRequestTimeout)
		if err == nil || ctx.Err() != nil || isProblem && !mayPass {
			return err
		}
		_ = loop.Sleep(ctx, backoff(p, n))
	}
}

// maxRetryAfter bounds the pause that a server or proxy asks for: the lease of a task lasts 30 s without a heartbeat.
const maxRetryAfter = 10 * time.Second

// backoff returns the pause before a call is repeated for the n-th time, from 0, after an answer or (nil) none.
func backoff(p *Problem, n int) time.Duration {
	if p != nil && p.RetryAfter > 0 {
		return min(time.Duration(p.RetryAfter)*time.Second, maxRetryAfter)
	}
	pause := min(5*time.Second, 100*time.Millisecond<<min(n, 10))
	return pause/2 + mathrand.N(pause)
}

// begin runs the handler of a task, unless the task is at work.
func (w *worker) begin(handlers context.Context, given wire.Task) {
	ctx, cancel := context.WithCancelCause(handlers)
	a := &attempt{cancel: cancel, isOver: func() bool { return ctx.Err() != nil }}
	if !w.hold(a, given) {
		cancel(nil)
		return
	}
	w.slots <- struct{}{} // the limit leaves room
	w.done.Go(func() {
		defer cancel(nil)
		t := newWorkTask(given, a)
		o := w.handle(ctx, t)
		w.reports <- struct{}{}
		<-w.slots // the next task may begin while the outcome is sent
		defer func() { <-w.reports }()
		if ctx.Err() == nil {
			w.report(ctx, t, o)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.held, a.offer)
	})
}

// hold adds an attempt to those at work, and returns true. It returns false if the task is at work: then that attempt
// goes on, under the fence that was given last.
func (w *worker) hold(a *attempt, given wire.Task) bool {
	ref := given.Ref()
	a.offer = offer{Key: ledger.Key{Kind: given.Kind, BizID: given.BizID}, version: given.Version,
		at: given.AvailableAt.UnixMicro()}
	a.ref.Store(&ref)
	w.mu.Lock()
	defer w.mu.Unlock()
	for ; w.held[a.offer] != nil; a.offer.n++ {
		if before := w.held[a.offer]; !before.isOver() {
			before.ref.Store(&ref)
			return false
		}
	}
	w.held[a.offer] = a
	return true
}

// handle calls the handler, unless it has returned for the same offer. A panic is an error.
func (w *worker) handle(ctx context.Context, t WorkTask) (o outcome) {
	w.mu.Lock()
	o, isKnown := w.unsent[t.attempt.offer.first()]
	w.mu.Unlock()
	if isKnown {
		return o
	}
	defer func() {
		if v := recover(); v != nil {
			o.err = fmt.Errorf("panic: %v", v)
		}
	}()
	o.result, o.err = w.options.Handle(ctx, t)
	return o
}

// report ends the attempt, and remembers the outcome if that is refused.
func (w *worker) report(ctx context.Context, t WorkTask, o outcome) {
	of := t.attempt.offer.first()
	w.mu.Lock()
	w.unsent[of] = o
	w.mu.Unlock()
	forget := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.unsent, of)
	}
	if w.send(ctx, t, o.result, o.err) == nil {
		forget()
		return
	}
	time.AfterFunc(remembered, forget)
}

// send sends an outcome. If the server refuses the result, the attempt fails.
func (w *worker) send(ctx context.Context, t WorkTask, result any, err error) error {
	text := json.RawMessage(nil)
	if err == nil && result != nil {
		if text, err = json.Marshal(result); err != nil {
			err = &FailError{Err: fmt.Errorf("the result cannot be JSON: %w", err), Permanent: true}
		}
	}
	if err == nil {
		var p *Problem
		err = t.attempt.end(func(ref wire.AttemptRef) error {
			return w.finish(ctx, wire.Finish{AttemptRef: ref, Result: text})
		})
		isRefused := errors.As(err, &p) &&
			(p.Status == http.StatusBadRequest || p.Status == http.StatusRequestEntityTooLarge)
		if !isRefused {
			return err
		}
		err = &FailError{Err: fmt.Errorf("the result is refused: %s", p.Detail)}
	}
	var snooze *SnoozeError
	if errors.As(err, &snooze) {
		in := snooze.In.Seconds()
		return t.attempt.end(func(ref wire.AttemptRef) error {
			return w.call(ctx, ":snooze", wire.Snooze{AttemptRef: ref, In: &in}, &wire.Outcome{})
		})
	}
	fail := wire.Fail{Error: err.Error(), ErrorType: reflect.TypeOf(err).String()}
	if fail.Error == "" {
		fail.Error = fail.ErrorType
	}
	var decided *FailError
	if errors.As(err, &decided) {
		fail.Permanent, fail.Safe = decided.Permanent, decided.Safe
		fail.ErrorType = reflect.TypeOf(decided.Err).String()
		if decided.RetryIn != nil {
			in := decided.RetryIn.Seconds()
			fail.RetryIn = &in
		}
	}
	return t.attempt.end(func(ref wire.AttemptRef) error {
		fail.AttemptRef = ref
		return w.call(ctx, ":fail", fail, &wire.Outcome{})
	})
}

// end sends an outcome. If the attempt has ended because the task was given again meanwhile, it sends the same outcome
// under the newer fence, so that no effect is repeated.
func (a *attempt) end(send func(wire.AttemptRef) error) error {
	for {
		ref := a.ref.Load()
		err := send(*ref)
		var p *Problem
		if !errors.As(err, &p) || p.Code != "attempt_ended" || a.ref.Load() == ref {
			return err
		}
	}
}

// maxTogether bounds the bytes of the results that are sent in one call.
const maxTogether = 512 << 10

// finish sends a success, together with others that come while a call is under way.
func (w *worker) finish(ctx context.Context, body wire.Finish) error {
	answer := make(chan error, 1)
	w.mu.Lock()
	w.finished = append(w.finished, finish{body, answer})
	isFirst := !w.isBusy
	w.isBusy = true
	w.mu.Unlock()
	if isFirst {
		go w.sendFinished(context.WithoutCancel(ctx))
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sendFinished sends successes until there are no more.
func (w *worker) sendFinished(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute) // longer than any server remembers the attempts
	defer cancel()
	for {
		w.mu.Lock()
		n, bytes := 0, 0
		for n < min(len(w.finished), 100) && (n == 0 || bytes+len(w.finished[n].body.Result) <= maxTogether) {
			bytes += len(w.finished[n].body.Result)
			n++
		}
		group := w.finished[:n:n]
		w.finished = w.finished[n:]
		w.isBusy = n > 0
		w.mu.Unlock()
		if n == 0 {
			return
		}
		w.sendGroup(ctx, group)
	}
}

func (w *worker) sendGroup(ctx context.Context, group []finish) {
	var body wire.Tasks[wire.Finish]
	for _, f := range group {
		body.Tasks = append(body.Tasks, f.body)
	}
	var answer wire.Tasks[wire.Finished[Problem]]
	err := w.call(ctx, ":finish", body, &answer)
	for i, f := range group {
		switch {
		case err != nil && len(group) > 1: // one of them may be at fault
			w.sendGroup(ctx, group[i:i+1])
			continue
		case err == nil && answer.Tasks[i].Problem != nil:
			f.answer <- answer.Tasks[i].Problem
		default:
			f.answer <- err
		}
	}
}

// beat sends heartbeats until ctx is done.
func (w *worker) beat(ctx context.Context) {
	for {
		w.mu.Lock()
		every := w.every
		w.mu.Unlock()
		if loop.Sleep(ctx, every) != nil {
			return
		}
		body := wire.Heartbeat{Session: w.session, Holds: []string{}}
		w.mu.Lock()
		for _, a := range w.held {
			if !a.isOver() {
				body.Holds = append(body.Holds, a.ref.Load().Fence)
			}
		}
		w.mu.Unlock()
		var beaten wire.Beaten
		if len(body.Holds) == 0 || w.client.do(ctx, http.MethodPost, "/v1/work:heartbeat", body, &beaten) != nil {
			continue // the next one follows
		}
		w.mu.Lock()
		for _, a := range w.held {
			fence := a.ref.Load().Fence
			if slices.ContainsFunc(beaten.Ended, func(e wire.Ended) bool { return e.Fence == fence }) {
				a.cancel(ErrAttemptEnded)
			}
		}
		w.mu.Unlock()
	}
}

// Progress reports how far a task is, from its handler. v becomes JSON of at most 16 KiB.
func (c *Client) Progress(ctx context.Context, t WorkTask, v any) error {
	if t.attempt == nil {
		return errors.New("client: the task must come from Work, which gives it to its handler")
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	report := wire.ReportProgress{AttemptRef: *t.attempt.ref.Load(), Progress: text}
	return c.do(ctx, http.MethodPost, "/v1/work:progress", report, &wire.Outcome{})
}
