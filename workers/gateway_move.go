package workers

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/ledger"
)

// An attempt belongs to the worker that appended last: no other takes the task while the lease of that worker lasts.
// This is the process of serve that gave the task. If that process has ended, its lease must end too: a worker that
// vanished with it no longer reports. Attempts for which heartbeats reach another process move to a lease of their
// session, which only these heartbeats renew. Two processes that move an attempt at a time append the same event.

// moveGroup bounds the attempts that are moved in one statement.
const moveGroup = 500

// sessionWorker returns the id of the worker to whose lease the attempts of the fence's session move.
func (f fence) sessionWorker(caller string) string { return caller + "-session-" + f.session }

// keepMoved keeps attempts of a session whose processes have ended: it moves them to the session's lease, and renews
// that. A live process has renewed its lease within a third of its term, unless isEnding.
func (g *gateway) keepMoved(ctx context.Context, caller string, held []elsewhere, isEnding bool) error {
	var kinds []string
	isDue := false
	var moving []elsewhere
	for _, e := range held {
		switch {
		case e.isMoved():
			isDue = isDue || e.left < g.config.Term*2/3
		case isEnding, e.left < g.config.Term/2:
			moving = append(moving, e)
		default:
			continue
		}
		if kind := string(e.Kind); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	if !isDue && len(moving) == 0 {
		return nil
	}
	slices.Sort(kinds)
	worker := held[0].sessionWorker(caller)
	err := lease.RenewSession(ctx, g.config.DB, worker, kinds, g.config.Term)
	for group := range slices.Chunk(moving, moveGroup) {
		if err == nil {
			err = g.move(ctx, group, worker)
		}
	}
	return err
}

// move appends progress under the id of a session's worker. An attempt whose start is not recorded begins first, and
// moves with the next heartbeat. Others may append meanwhile: then the next heartbeat decides.
func (g *gateway) move(ctx context.Context, attempts []elsewhere, worker string) error {
	requests := make([]ledger.AppendRequest, len(attempts))
	for i, e := range attempts {
		requests[i] = e.started()
		if !e.runs() {
			continue
		}
		requests[i] = ledger.AppendRequest{
			Key: e.Key, Expected: e.version, Type: ledger.EventProgressed, Actor: worker, Data: json.RawMessage(`{}`),
		}
		if e.last == ledger.EventProgressed { // the newest report stays the newest
			o := ledger.NewestOptions{Types: []ledger.EventType{ledger.EventProgressed}, Limit: 1}
			newest, err := ledger.NewestOf(ctx, g.config.DB, e.Key, o)
			if err != nil {
				return err
			}
			if len(newest) > 0 {
				requests[i].Data = newest[0].Data
			}
		}
	}
	var all []error
	for _, r := range ledger.AppendEach(ctx, g.config.DB, requests) {
		if r.Err != nil && !isEndable(r.Err) {
			all = append(all, r.Err)
		}
	}
	return errors.Join(all...)
}

// maxHandOvers bounds how often the attempts of a session are moved, because others append meanwhile.
const maxHandOvers = 3

// handOver moves the attempts that workers in other processes hold to their sessions, because this process ends: a
// deploy of serve ends no attempt, and a worker's next heartbeat reaches another process. It is called once.
func (p *gatewayPool) handOver() {
	lasting, end := p.pool.runner.Operation()
	defer end()
	ctx, cancel := context.WithTimeout(lasting, p.pool.runner.Grace()) // then the attempts end, see giveBack
	defer cancel()
	caller := p.pool.config.Name
	for session, all := range p.leaving() {
		if err := p.handOverSession(ctx, caller, session, all); err != nil {
			p.pool.config.Logger.WarnContext(ctx, "cannot leave tasks to their worker", "error", err)
		}
	}
}

// leaving returns the attempts that may outlive this process.
func (p *gatewayPool) leaving() map[string][]*delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[string][]*delivery)
	for _, d := range p.fences {
		if !d.isOver && (!d.session.isHere || d.outlives) && d.kind.guarantee != ExactlyOnce {
			all[d.session.id] = append(all[d.session.id], d)
		}
	}
	return all
}

// handOverSession moves the attempts of a session that its worker has received.
func (p *gatewayPool) handOverSession(ctx context.Context, caller, session string, all []*delivery) error {
	g := p.gateway
	var texts []string
	var known []*delivery
	for _, d := range all {
		p.mu.Lock()
		isRead, text := d.isRead, d.fence
		p.mu.Unlock()
		if !isRead {
			left, err := lease.SessionHolds(ctx, g.config.DB, caller+"/"+session, d.number)
			if err != nil {
				return err
			}
			isRead = left > 0
		}
		if isRead {
			texts, known = append(texts, text), append(known, d)
		}
	}
	open, err := g.openAll(ctx, caller, texts)
	if err != nil {
		return err
	}
	for range maxHandOvers {
		var fences []fence
		var of []*delivery
		for i, d := range known {
			if f, ok := open[i]; ok && !f.isOver() {
				fences, of = append(fences, f), append(of, d)
			}
		}
		if len(fences) == 0 {
			return nil
		}
		heads, err := g.read(ctx, fences)
		if err != nil {
			return err
		}
		var left []elsewhere
		p.mu.Lock()
		for i, e := range heads {
			switch reason, _ := e.end(); {
			case e.isMoved():
				of[i].isMoved = true
			case reason == "":
				left = append(left, e)
			}
		}
		p.mu.Unlock()
		if len(left) == 0 {
			return nil
		}
		if err := g.keepMoved(ctx, caller, left, true); err != nil {
			return err
		}
	}
	return nil
}
