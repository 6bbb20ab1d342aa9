package workers

import (
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/remote"
)

// remoteSession is a process of a worker. The mutex of the pool guards it.
type remoteSession struct {
	id, worker string
	isHere     bool // it ends with this process
	batch      int64
	unread     []remoteBatch
	held       map[*delivery]struct{}
	request    *remoteRequest // that waits, or nil
	seenAt     time.Time
}

// remoteBatch is the tasks of an answer that may be lost.
type remoteBatch struct {
	number     int64
	deliveries []*delivery
}

// heartbeat renews the tasks of a session. It returns finished ones, and the fences of tasks that it does not
// have. isRemote: the heartbeat comes from another process.
func (p *gatewayPool) heartbeat(
	session string, fences []string, isRemote bool,
) (ended []remote.Ended, unknown []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if s := p.sessions[session]; s != nil {
		s.seenAt = now
	}
	for _, f := range fences {
		d := p.fences[f]
		if d == nil {
			d = p.over[f]
		}
		switch {
		case d == nil:
			unknown = append(unknown, f)
		case d.session.id != session:
			ended = append(ended, remote.Ended{Fence: f, Reason: remote.Unknown})
		case !d.isOver:
			d.expires, d.isRead, d.outlives = now.Add(p.term()), true, d.outlives || isRemote
		case d.reason == remote.Fenced && d.kind.guarantee != ExactlyOnce: // see noteEnd
			unknown = append(unknown, f)
		case d.reason != "":
			ended = append(ended, remote.Ended{Key: d.job.Key, Fence: f, Reason: d.reason})
		}
	}
	return ended, unknown
}

// live returns the fences of attempts of a session that are not over.
func (p *gatewayPool) live(session string, fences []string) (live []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range fences {
		if d := p.fences[f]; d != nil && !d.isOver && d.session.id == session {
			live = append(live, f)
		}
	}
	return live
}

// release ends attempts of a session, or all and the session, and returns them, and the fences of tasks that it does
// not have.
func (p *gatewayPool) release(session string, fences []string) (released []*delivery, unknown []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range fences {
		if p.fences[f] == nil && p.over[f] == nil {
			unknown = append(unknown, f)
		}
	}
	s := p.sessions[session]
	if s == nil {
		return nil, unknown
	}
	unanswered := make(map[*delivery]bool)
	if fences == nil {
		if s.request != nil {
			for _, d := range s.request.got {
				unanswered[d] = !d.again
			}
			s.request.isEnded = true
			s.request.signal()
			p.close(s.request)
		}
		delete(p.sessions, session)
	}
	all := make(map[string]bool, len(fences))
	for _, f := range fences {
		all[f] = true
	}
	for d := range s.held {
		if d.isOver || fences != nil && !all[d.fence] {
			continue
		}
		switch g := d.kind.guarantee; {
		case g == ExactlyOnce, unanswered[d]:
			d.refuse(errNotTaken)
		case g == AtMostOnce: // its handler may have begun
			d.refuse(fmt.Errorf("%w how it ended, and has given it back", errLost))
		default:
			d.refuse(errReleased)
		}
		released = append(released, d)
	}
	return released, unknown
}
