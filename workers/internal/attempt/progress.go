package attempt

import (
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/eventdata"
	"github.com/taskledger/taskledger/ledger"
)

// liveEvery is the least interval of messages.
const liveEvery = 100 * time.Millisecond

// ProgressEvery returns the least interval of the events of an attempt that has run for some time: a second, and a
// hundredth of that time. An attempt of an hour records at most 460 events, one of a day 780.
func ProgressEvery(ran time.Duration) time.Duration { return max(time.Second, ran/100) }

// ProgressData is the data of a progressed event.
type ProgressData eventdata.Progressed

// JSON returns the data of the event.
func (d ProgressData) JSON() json.RawMessage {
	text, _ := json.Marshal(d) // members are JSON
	return text
}

// progress holds the newest report of a handler until it is recorded. It is safe for concurrent use.
type progress struct {
	mu         sync.Mutex      // guards the fields below
	newest     json.RawMessage // nil if it is recorded
	recordedAt time.Time       // when the last event was begun
	sentAt     time.Time       // when the last message was sent
	timer      *time.Timer     // until the next event, or nil
	isStopped  bool
}

// stop drops a report that is not recorded: the outcome of the attempt follows.
func (p *progress) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isStopped = true
	if p.timer != nil {
		p.timer.Stop()
	}
}

// Progress records a report within the interval of events, without waiting for the database. It calls send if the
// report is due to be sent as a message, too.
func (a *Attempt) Progress(text json.RawMessage, send func()) {
	a.mu.Lock()
	if a.isJoined {
		a.mu.Unlock()
		return
	}
	if a.progress == nil {
		a.progress = &progress{recordedAt: a.beganAt} // so that quick attempts record no progress
	}
	p, now := a.progress, time.Now()
	a.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isStopped {
		return
	}
	p.newest = text
	if now.Sub(p.sentAt) >= liveEvery && !a.private {
		p.sentAt = now
		send()
	}
	if p.timer == nil {
		every := ProgressEvery(now.Sub(a.beganAt))
		p.timer = time.AfterFunc(max(0, every-now.Sub(p.recordedAt)), a.noteProgress)
	}
}

// noteProgress records the newest report.
func (a *Attempt) noteProgress() {
	p := a.progress
	p.mu.Lock()
	text := p.newest
	p.newest, p.timer, p.recordedAt = nil, nil, time.Now()
	p.mu.Unlock()
	if text == nil {
		return
	}
	err := a.Note(ledger.EventProgressed, ProgressData{Progress: text}.JSON())
	if err != nil && !errors.Is(err, errEnded) {
		a.kind.Logger.Warn("cannot record progress", "biz_id", string(a.task.Message.BizID), "error", err)
	}
}
