package attempt

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// noteTimer calls noteStart of an attempt when it has run for StartedAfter. A stopped timer serves another attempt.
type noteTimer struct {
	timer   *time.Timer
	attempt *Attempt // constant while the timer runs
}

func (k *Kind) startNoteTimer(a *Attempt) *noteTimer {
	if t, _ := k.noteTimers.Get().(*noteTimer); t != nil {
		t.attempt = a
		t.timer.Reset(k.StartedAfter)
		return t
	}
	t := &noteTimer{attempt: a}
	t.timer = time.AfterFunc(k.StartedAfter, func() { t.attempt.noteStart() })
	return t
}

// stopNoteTimer stops a timer, which must not be used afterwards.
func (k *Kind) stopNoteTimer(t *noteTimer) {
	if t.timer.Stop() {
		t.attempt = nil
		k.noteTimers.Put(t)
	}
}

// noteStart is called when an attempt has run for StartedAfter. It records the start, outside the attempt's
// transaction, and watches for the end of its context. Quick attempts need neither. If the attempt holds a permit,
// which expires without the event, it tries until the event is recorded.
func (a *Attempt) noteStart() {
	a.mu.Lock()
	if a.isJoined {
		a.mu.Unlock()
		return
	}
	a.unwatch = context.AfterFunc(a.ctx, func() {
		time.AfterFunc(a.kind.Grace(), a.abandon)
	})
	a.mu.Unlock()
	for {
		err := a.Note(ledger.EventStarted, nil)
		if err == nil || errors.Is(err, errEnded) || !a.hasPermit || loop.Sleep(a.ctx, noteAgainAfter) != nil {
			return
		}
	}
}

// noteAgainAfter is how long after an error the start of an attempt with a permit is recorded again. Without the event
// the permit expires.
const noteAgainAfter = 500 * time.Millisecond

// Note appends an event of the running attempt outside its transaction: its start, unless that is already recorded, or
// progress, which implies the start. Notes of one attempt do not overlap. If another process has appended to the task,
// the handler's context is cancelled and Note returns the cause ([ErrFenced]). After any other error the event may or
// may not be recorded.
func (a *Attempt) Note(t ledger.EventType, data json.RawMessage) error {
	a.noteMu.Lock()
	defer a.noteMu.Unlock()
	a.mu.Lock()
	isJoined, claimed, isFenced := a.isJoined, a.claimed, a.isFenced
	a.mu.Unlock()
	switch {
	case isFenced:
		return ErrFenced
	case isJoined || a.private || claimed && t == ledger.EventStarted:
		return errEnded
	}
	if !claimed {
		data = a.startData(data)
	}
	e, version, fence, err := a.appendNote(t, data)
	a.mu.Lock()
	a.claimed = a.claimed || version != a.version
	a.version, a.isFenced = version, fence != nil
	a.mu.Unlock()
	if fence != nil {
		a.cancel(fence)
		return fence
	}
	if e.Version != 0 {
		a.started(e)
	}
	return err
}

// appendNote appends an event of the running attempt. It returns the event if the answer arrived, the version that
// the attempt must expect from then on, and the cause if the attempt is fenced.
func (a *Attempt) appendNote(
	t ledger.EventType, data json.RawMessage,
) (e ledger.Event, version ledger.Version, fence, err error) {
	k := a.kind
	ctx, cancel := k.Operation()
	defer cancel()
	e, err = ledger.Append(ctx, k.db, a.request(t, data))
	switch {
	case err == nil:
		return e, e.Version, nil, nil
	case ledger.IsConflict(err):
		return e, a.version, fenceOf(err), err
	case errors.Is(err, ledger.ErrStartLimit) && a.hasPermit: // the permit has expired
		return e, a.version, ErrFenced, err
	}
	// The event may or may not be recorded: the head decides.
	k.warn(
		"cannot record that an attempt runs", "event", string(t), "biz_id", string(a.task.Message.BizID), "error", err,
	)
	retry, stop := k.Operation()
	defer stop()
	heads, headErr := k.Heads(retry, []*Task{a.task}, 0, nil)
	if headErr != nil {
		return e, a.version, nil, err // if the event is recorded after all, the outcome will be fenced
	}
	switch h := heads[0]; {
	case h.IsFound && h.Version == a.version:
		return e, a.version, nil, err
	case h.Version == a.version+1 && h.Type == t && h.Actor == k.id:
		return e, h.Version, nil, nil
	}
	return e, a.version, ErrFenced, err
}

// FenceMoved reads the heads of running tasks, and cancels the handlers of tasks to which another process has
// appended.
func (k *Kind) FenceMoved(begun []*Attempt) {
	ctx, cancel := k.Operation()
	defer cancel()
	for len(begun) > 0 {
		n := min(len(begun), MaxBatch)
		tasks := make([]*Task, n)
		for i, a := range begun[:n] {
			m := &a.task.Message // the task's other fields belong to other goroutines
			tasks[i] = &Task{Message: stream.Message{Key: m.Key, Version: m.Version}}
		}
		heads, err := k.Heads(ctx, tasks, 0, nil)
		if err != nil {
			k.Logger.WarnContext(ctx, "cannot read the heads of running tasks", "tasks", n, "error", err)
			return
		}
		for i, a := range begun[:n] {
			a.fenceIfMoved(heads[i])
		}
		begun = begun[n:]
	}
}

// fenceIfMoved cancels the handler if the head is an event of another process. The head may be older than the
// attempt's version, or newer by a note under way.
func (a *Attempt) fenceIfMoved(h Head) {
	a.mu.Lock()
	known := a.version
	a.mu.Unlock()
	isOwn := h.Actor == a.kind.id && h.Type.State() == ledger.StateRunning
	switch {
	case a.isEnded.Load(), h.IsFound && (h.Version <= known || isOwn): // isEnded is set before the outcome is appended
	case h.Type == ledger.EventCancelled:
		a.cancel(ErrCancelled)
	default:
		a.cancel(ErrFenced)
	}
}

// fenceOf returns the cause with which the handler of a fenced attempt is cancelled.
func fenceOf(err error) error {
	var conflict *ledger.ConflictError
	if errors.As(err, &conflict) && conflict.State == ledger.StateCancelled {
		return ErrCancelled
	}
	return ErrFenced
}

// isRefused reports whether the database answered with a permanent error: the append or commit itself is at fault.
func isRefused(err error) bool {
	var invalid *ledger.InvalidError
	return errors.As(err, &invalid) || pgerr.Code(err) != "" && !ledger.Retryable(err)
}

func isInvalid(err error) bool {
	var invalid *ledger.InvalidError
	return errors.As(err, &invalid)
}
