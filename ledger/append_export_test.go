package ledger

import "github.com/taskledger/taskledger/internal/unexported"

// LastEvent returns the last event that was set by unexported.SetLastEvent.
func (r *AppendRequest) LastEvent() unexported.LastEvent { return r.last }
