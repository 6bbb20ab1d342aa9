// Package unexported holds functions of package ledger that only packages of this module call. Package ledger stores
// them here when the program starts. It imports this package, so its types are any in their signatures.
package unexported

// LastEvent is a task's last event as a worker has read it from the primary, for the append of the next event. Without
// Incarnation, no event was read.
type LastEvent struct {
	// Incarnation identifies the database and its server. The statement that reads the event returns it by
	// taskledger_internal.session_incarnation().
	Incarnation string
	State       string // of the task
	Version     int32
	Attempt     int32
	Shard       int16
	Priority    int16
	Partition   string
	OrderKey    string
	Position    int64 // of the event, or of an earlier one of the task; 0: unknown
}

var (
	// SetLastEvent sets the event at Expected of a *ledger.AppendRequest. AppendEach and AppendAndCommit do not read it
	// again. If the database may have lost the event since, AppendEach reads it, and AppendAndCommit fails.
	// AppendAndCommit reads the event of a task with an order key again. Other functions ignore it.
	SetLastEvent func(request any, last LastEvent)
	// SetResent marks a *ledger.AppendRequest that was sent before and whose result was lost. If the event at
	// Expected+1 is equal in type, actor, data and meta, Append and AppendEach return it instead of a conflict. Use it
	// only where no other process can send the same request, because Data names the sender and the occasion. A request
	// with After or At is never recognized.
	SetResent func(request any)
	// ScanEvents is a func(pgx.Rows, ...any) iter.Seq2[ledger.Event, error]: see package eventrows.
	ScanEvents any
	// LoadFinished is a func(context.Context, ledger.DB, []ledger.Key) ([]ledger.Task, []error, error). It returns the
	// tasks with these keys, and an error or nil for each of them, from one snapshot. A task is as ledger.Load returns
	// it if it is finished. Otherwise only Key, Shard, State, Version, Attempt, UpdatedAt and Actor are set. The last
	// error is one of the database.
	LoadFinished any
)
