package webhooks

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/post"
	"github.com/taskledger/taskledger/internal/remote"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

//go:embed sql/pause_pushed.sql
var pausePushedSQL string

// PusherConfig configures a [Pusher].
type PusherConfig struct {
	DB *pgxpool.Pool // the primary. Required.
	// Work gives the tasks. With the gateway of the HTTP API, a server can end an accepted task by its calls. Required.
	Work remote.Gateway
	File PushFile // Required.
	// Logger logs outages. Default: [slog.Default].
	Logger *slog.Logger
}

// Pusher sends tasks to HTTP servers, each as a signed request:
//
//	{"type": "KIND", "timestamp": ...,
//	 "data": {"kind", "biz_id", "attempt", "version", "fence", "session", "args", "finish_by"}}
//
// Any 2xx answer but 202 ends the attempt as a success, with the body as result if it is JSON of at most 256 KiB and
// 512 levels. With 202 the attempt goes on until the server ends it by the calls of docs/work-over-http.md, with a
// token named [Push].Caller; its heartbeats keep the attempt if this process ends. Another answer, or no whole one in
// time, is a failure; Retry-After delays the retry and never shortens it. 410 Gone also pauses the kind, until an
// operator resumes it.
//
// The webhook-id is the same for each attempt of a run of a task.
type Pusher struct {
	config PusherConfig
}

// NewPusher returns a pusher. It returns an error that names every fault.
func NewPusher(c PusherConfig) (*Pusher, error) {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("DB is required"))
	}
	if c.Work == nil {
		faults = append(faults, errors.New("Work is required"))
	}
	if err := c.File.Validate(); err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("webhook: invalid PusherConfig: %w", errors.Join(faults...))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Pusher{config: c}, nil
}

// Run works until ctx is done and running requests have ended, and then returns nil. It retries through outages.
// Kinds are independent.
func (p *Pusher) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, one := range p.config.File.Push {
		one = one.withDefaults()
		k := &pushedKind{
			Push: one, pusher: p, session: rand.Text(), slots: make(chan struct{}, one.Slots),
			sender: one.sender(one.Slots), held: make(map[string]func()),
		}
		all.Go(func() { k.run(ctx) })
	}
	all.Wait()
	return nil
}

// pushedKind is a kind whose tasks are sent.
type pushedKind struct {
	Push
	pusher  *Pusher
	session string
	sender  *sender
	slots   chan struct{} // holds a token for each task that is sent or accepted

	requests   sync.WaitGroup
	stopping   context.Context // set by run; done when the pusher stops
	concluding context.Context // set by run; done when outcomes are not tried again

	mu   sync.Mutex
	held map[string]func() // by fence, guarded by mu; each ends the work on its task
}

// askFor is how long one request for tasks waits.
const askFor = 20 * time.Second

// run takes tasks and sends them until ctx is done.
func (k *pushedKind) run(ctx context.Context) {
	log := k.pusher.config.Logger.With("kind", string(k.Kind))
	lasting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	concluding, giveUp := context.WithCancel(lasting)
	defer giveUp()
	k.stopping, k.concluding = ctx, concluding
	defer context.AfterFunc(ctx, func() { _ = loop.Sleep(concluding, concludeFor); giveUp() })()
	go k.beat(lasting)
	defer k.sender.client.Close()
	defer k.endAll()
	defer k.requests.Wait()
	work := k.pusher.config.Work
	ask := remote.Ask{
		Worker: "push", Session: k.session, Kinds: []ledger.Kind{k.Kind},
		Guarantee: string(workers.AtLeastOnce), Wait: askFor,
		Timeout: time.Duration(k.AcceptedFor) + time.Duration(k.Timeout) + grace, // see accept
		IsHere:  true,
	}
	for ctx.Err() == nil {
		select {
		case k.slots <- struct{}{}:
			<-k.slots
		case <-ctx.Done():
			return
		}
		ask.Limit = min(100, cap(k.slots)-len(k.slots))
		answer, err := work.Ask(ctx, k.Caller, ask)
		if errors.Is(err, workers.ErrStopping) {
			return
		}
		if err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "cannot take tasks to be sent", "error", err, "retry_in", time.Second)
			_ = loop.Sleep(ctx, time.Second)
			continue
		}
		ask.Received = answer.Batch
		for _, t := range answer.Tasks {
			k.slots <- struct{}{} // the limit leaves room
			attempt, cancel := context.WithCancel(lasting)
			k.mu.Lock()
			k.held[t.Fence] = cancel
			k.mu.Unlock()
			k.requests.Go(func() { k.push(attempt, t) })
		}
	}
}

// beat renews sent and accepted tasks, and releases the slots of finished ones, until ctx is done.
func (k *pushedKind) beat(ctx context.Context) {
	work := k.pusher.config.Work
	for loop.Sleep(ctx, min(work.Term()/3, time.Second)) == nil {
		var fences []string
		k.mu.Lock()
		for f := range k.held {
			fences = append(fences, f)
		}
		k.mu.Unlock()
		if len(fences) == 0 {
			continue
		}
		live := make(map[string]bool)
		for _, f := range work.Live(k.Caller, k.session, fences) {
			live[f] = true
		}
		for _, f := range fences {
			if !live[f] {
				k.end(f)
			}
		}
	}
}

// end releases the slot of a task.
func (k *pushedKind) end(fence string) {
	k.mu.Lock()
	cancel := k.held[fence]
	delete(k.held, fence)
	k.mu.Unlock()
	if cancel != nil {
		cancel()
		<-k.slots
	}
}

// endAll releases the slots of all tasks. The gateway gives them back.
func (k *pushedKind) endAll() {
	k.mu.Lock()
	fences := slices.Collect(maps.Keys(k.held))
	k.mu.Unlock()
	for _, f := range fences {
		k.end(f)
	}
}

// accept lets an attempt continue that its server has accepted, for at most AcceptedFor.
func (k *pushedKind) accept(t remote.Task) {
	k.mu.Lock()
	defer k.mu.Unlock()
	stop, isHeld := k.held[t.Fence]
	if !isHeld { // it is over
		return
	}
	limit := time.Duration(k.AcceptedFor)
	timer := time.AfterFunc(limit, func() {
		late := fmt.Errorf("%w %s after the answer 202", workers.ErrTimeout, limit)
		k.conclude(remote.Outcome{AttemptRef: t.AttemptRef, Err: k.failure(t, late)})
	})
	k.held[t.Fence] = func() { timer.Stop(); stop() }
}

// concludeFor bounds one try to record an outcome, and how long a pusher that is stopping tries again.
const concludeFor = 10 * time.Second

// conclude records an outcome and releases the slot of its task. While the database is unavailable it tries again: the
// server has done the work, and would get the task once more.
func (k *pushedKind) conclude(o remote.Outcome) {
	defer k.end(o.Fence)
	log := k.pusher.config.Logger.With("kind", string(k.Kind), "biz_id", string(o.BizID))
	ctx := k.concluding
	for delay := (loop.Backoff{Max: 5 * time.Second}); ; {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), concludeFor)
		err := k.pusher.config.Work.End(bounded, k.Caller, o)[0].Err
		cancel()
		var ended *remote.EndedError
		var invalid *ledger.InvalidError
		switch {
		case err == nil:
			return
		case errors.As(err, &ended), errors.As(err, &invalid), errors.Is(err, ledger.ErrUnknownTask):
			log.WarnContext(ctx, "the outcome of a task that was sent is refused", "error", err)
			return
		}
		wait := delay.Next()
		log.WarnContext(ctx, "cannot record the outcome of a task that was sent", "error", err, "retry_in", wait)
		if loop.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// pause pauses the kind, whose server has answered 410 Gone, until an operator resumes it. The task keeps its slot
// until the pause is noticed, so that no other is sent.
func (k *pushedKind) pause(ctx context.Context, gone error) {
	isNew := false
	log := k.pusher.config.Logger.With("kind", string(k.Kind))
	if _, err := pgquery.Row(ctx, k.pusher.config.DB, pausePushedSQL, []any{string(k.Kind)}, &isNew); err != nil {
		log.WarnContext(ctx, "cannot pause the kind", "error", pgerr.Explain("pause the kind", err))
		return
	}
	if isNew {
		err := fmt.Errorf("%w; when it answers again: taskledger resume kind %s", gone, k.Kind)
		log.ErrorContext(ctx, "the kind is paused; its tasks wait", "error", err)
	}
	_ = loop.Sleep(ctx, noticed) // an error means that the attempt ends
}

// pushed is the data of a request.
type pushed struct {
	Kind     ledger.Kind     `json:"kind"`
	BizID    ledger.BizID    `json:"biz_id"`
	Attempt  ledger.Attempt  `json:"attempt"`
	Version  ledger.Version  `json:"version"`
	Fence    string          `json:"fence"`
	Session  string          `json:"session"` // for heartbeats
	Args     json.RawMessage `json:"args,omitempty"`
	Base64   string          `json:"args_base64,omitempty"`
	FinishBy time.Time       `json:"finish_by,omitzero"`
}

// push sends a task and records the outcome, unless it is accepted.
func (k *pushedKind) push(ctx context.Context, t remote.Task) {
	reply, err := k.send(ctx, t)
	if err != nil && (ctx.Err() != nil || errors.Is(err, errNotSent)) {
		return // beat has ended it, or the gateway gives it back
	}
	if err == nil && reply.Status == http.StatusAccepted {
		k.accept(t)
		return
	}
	o := remote.Outcome{AttemptRef: t.AttemptRef}
	var status *post.StatusError
	switch {
	case err != nil:
		if errors.As(err, &status) && status.Status == http.StatusGone {
			k.pause(ctx, err)
		}
		o.Err = k.failure(t, err)
	case ledger.IsJSON(reply.Body) && string(bytes.TrimSpace(reply.Body)) != "null":
		o.Result = reply.Body
	}
	k.conclude(o)
}

// maxPushReply is the greatest body that becomes a result: the bound of results.
const maxPushReply = 256 << 10

// errNotSent means that the pusher stops while the database is unavailable: the task was not sent.
var errNotSent = errors.New("the task was not sent")

// send sends a task.
func (k *pushedKind) send(ctx context.Context, t remote.Task) (post.Reply, error) {
	id, err := k.pusher.id(ctx, t.Key)
	for delay := (loop.Backoff{}); err != nil; id, err = k.pusher.id(ctx, t.Key) {
		k.pusher.config.Logger.WarnContext(ctx, "cannot read a task that is to be sent", "kind", string(t.Kind),
			"biz_id", string(t.BizID), "error", err)
		select {
		case <-time.After(delay.Next()):
		case <-ctx.Done():
			return post.Reply{}, err
		case <-k.stopping.Done():
			return post.Reply{}, errNotSent
		}
	}
	data := pushed{
		Kind: t.Kind, BizID: t.BizID, Attempt: t.Attempt, Version: t.Version, Fence: t.Fence, Session: k.session,
		FinishBy: t.FinishBy,
	}
	if json.Valid(t.Args) {
		data.Args = t.Args
	} else if len(t.Args) > 0 {
		data.Base64 = base64.StdEncoding.EncodeToString(t.Args)
	}
	return k.sender.exchange(ctx, Message{ID: id, Type: string(t.Kind), At: t.AvailableAt, Data: data}, maxPushReply)
}

// id returns the webhook-id of a task: of the event with its args, so that each run has another.
func (p *Pusher) id(ctx context.Context, k ledger.Key) (string, error) {
	first, err := ledger.ArgsEvent(ctx, p.config.DB, k)
	if err != nil {
		return "", err
	}
	var installation string
	if _, err := pgquery.Row(ctx, p.config.DB, installationSQL, nil, &installation); err != nil {
		return "", pgerr.Explain("read the installation", err)
	}
	return fmt.Sprintf("task_%s_%d_%d", installation, first.Position, first.RecordedAt.UnixMicro()), nil
}

// failure returns the error of an attempt. Retry-After delays the retry, and never shortens the delay of the policy.
func (k *pushedKind) failure(t remote.Task, err error) error {
	failure := &remote.Error{Message: err.Error(), Type: "webhook", Retry: k.Retry}
	var status *post.StatusError
	if errors.As(err, &status) && status.RetryAfter > k.Retry.Delay(int(t.Attempt), 0) {
		return workers.RetryIn(status.RetryAfter, failure)
	}
	return failure
}
