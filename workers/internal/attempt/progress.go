package attempt

import (
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

const (
	progressEvery = time.Second            // at most one event
	liveEvery     = 100 * time.Millisecond // at most one message
)

// ProgressData is the data of a progressed event.
type ProgressData struct {
	Progress   json.RawMessage `json:"progress,omitempty"`
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`
}

// JSON returns the data as an event carries it.
func (d ProgressData) JSON() json.RawMessage {
	text, _ := json.Marshal(d) // members are JSON
	return text
}

// progress is how far a handler is: the newest report is recorded. It is safe for concurrent use.
type progress struct {
	mu       sync.Mutex
	newest   json.RawMessage // nil: it is on record
	recorded time.Time       // when the last event was begun
	sent     time.Time       // when the last message was
	timer    *time.Timer     // until the next event; nil: none is due
	stopped  bool
}

// stop drops what is not recorded: the outcome of the attempt follows.
func (p *progress) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	if p.timer != nil {
		p.timer.Stop()
	}
}

// Progress records how far the handler is, within a second and without waiting for the database. It calls
// send, if the report is also to be sent as a message now.
func (a *Attempt) Progress(text json.RawMessage, send func()) {
	p, now := &a.progress, time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	p.newest = text
	if now.Sub(p.sent) >= liveEvery && !a.private {
		p.sent = now
		send()
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(max(0, progressEvery-now.Sub(p.recorded)), a.noteProgress)
	}
}

// noteProgress records the newest report.
func (a *Attempt) noteProgress() {
	p := &a.progress
	p.mu.Lock()
	text := p.newest
	p.newest, p.timer, p.recorded = nil, nil, time.Now()
	p.mu.Unlock()
	if text == nil {
		return
	}
	if err := a.Note(ledger.EventProgressed, ProgressData{Progress: text}.JSON()); err != nil && !errors.Is(err, errEnded) {
		a.kind.Logger.Warn("cannot record progress", "biz_id", string(a.task.Message.BizID), "error", err)
	}
}
