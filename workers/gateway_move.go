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
// that. A live process has renewed its lease within a third of its term.
func (g *gateway) keepMoved(ctx context.Context, caller string, held []elsewhere) error {
	detail := leaseDetail{Guarantees: make(guarantees), Shards: ledger.AllShards, IsSession: true}
	isDue := false
	var moving []elsewhere
	for _, e := range held {
		switch {
		case e.isMoved():
			isDue = isDue || e.left < g.config.Term*2/3
		case e.left < g.config.Term/2:
			moving = append(moving, e)
		default:
			continue
		}
		if kind := string(e.Kind); !slices.Contains(detail.Kinds, kind) {
			guarantee := AtLeastOnce
			if e.isOnce {
				guarantee = AtMostOnce
			}
			detail.Kinds = append(detail.Kinds, kind)
			detail.Guarantees[guarantee] = append(detail.Guarantees[guarantee], kind)
		}
	}
	if !isDue && len(moving) == 0 {
		return nil
	}
	slices.Sort(detail.Kinds)
	worker := held[0].sessionWorker(caller)
	err := lease.Renew(ctx, g.config.DB, lease.Worker(worker), worker, g.config.Term, detail)
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
