package workers

import "github.com/taskledger/taskledger/ledger"

// Status is a snapshot of a pool and its counters since it was created.
type Status struct {
	ID    string       `json:"id"`
	Kinds []KindStatus `json:"kinds"` // in the order of registration
}

// KindStatus is the [Status] of one kind.
type KindStatus struct {
	Kind          ledger.Kind       `json:"kind"`
	Guarantee     Guarantee         `json:"guarantee"`
	Slots         int               `json:"slots"`
	Shards        ledger.ShardSet   `json:"shards"`          // whose tasks it takes
	Paused        bool              `json:"paused"`          // by an operator
	InFlight      int               `json:"in_flight"`       // tasks from offer to outcome
	InFlightBytes int               `json:"in_flight_bytes"` // of their payloads
	Running       int               `json:"running"`         // slots taken by handlers, the overdue ones included
	Overdue       int               `json:"overdue"`         // handlers that did not return in time
	Ghosts        int64             `json:"ghosts"`          // see [NoticeGhost]
	TakenOver     int64             `json:"taken_over"`      // see [NoticeTakenOver]
	GivenBack     int64             `json:"given_back"`      // see [NoticeGivenBack]
	Attempts      map[Outcome]int64 `json:"attempts"`
}

// Status returns a snapshot. It is safe for concurrent use.
func (p *Pool) Status() Status {
	s := Status{ID: p.id}
	for _, k := range p.registered() {
		s.Kinds = append(s.Kinds, k.status())
	}
	return s
}

func (k *kind) status() KindStatus {
	ks := KindStatus{
		Kind: k.Name, Guarantee: k.guarantee, Slots: k.slots(), Shards: k.pool.config.Shards,
		Running: k.Running(), Overdue: k.Overdue(),
		Paused: k.isPaused.Load(),
		Ghosts: k.counts.noticed(NoticeGhost), TakenOver: k.counts.noticed(NoticeTakenOver),
		GivenBack: k.counts.noticed(NoticeGivenBack), Attempts: make(map[Outcome]int64, len(outcomes)),
	}
	ks.InFlight, ks.InFlightBytes = k.Tasks.Size()
	for i, o := range outcomes {
		ks.Attempts[o] = k.counts.attempts[i].Load()
	}
	return ks
}
