package lease

import (
	"context"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/dispatcher_take.sql
	dispatcherTakeSQL string
	//go:embed sql/dispatcher_look.sql
	dispatcherLookSQL string
	//go:embed sql/dispatcher_yield.sql
	dispatcherYieldSQL string
	//go:embed sql/dispatcher_run.sql
	dispatcherRunSQL string
	//go:embed sql/dispatcher_refuse.sql
	dispatcherRefuseSQL string
	//go:embed sql/holds.sql
	holdsSQL string
	//go:embed sql/sessions.sql
	sessionsSQL string
)

// DispatcherClaim is a claim of the dispatcher's lease.
type DispatcherClaim struct {
	Holder string // a new one for each epoch
	For    time.Duration
	Key    []byte // public
	// Backend is the server process of the connection that the holder keeps open; 0: none. See [RelayClaim].
	Backend uint32
	// Displaced is a holder whose lease counts as expired; "" for none.
	Displaced string
	// Run is the run of the server in which no copy of the database works.
	Run string
	// Latency is how long the holder lets events gather. Workers let outcomes gather in proportion.
	Latency time.Duration
}

// DispatcherTerm describes the lease of the dispatcher that holds it.
type DispatcherTerm struct {
	Epoch       int64
	Before      time.Duration // for how long the displaced holder's lease would still last
	Incarnation string        // of the database and its server, as the statement has found it; "": none yet
	HasArchive  bool          // a run of the archive had begun once the lease was written
}

// TakeDispatcher takes or renews the dispatcher's lease. It reports whether the holder holds it.
func TakeDispatcher(ctx context.Context, db ledger.DB, c DispatcherClaim) (t DispatcherTerm, ok bool, err error) {
	if _, err := db.Exec(ctx, boundSQL); err != nil {
		return t, false, pgerr.Explain("shorten leases", err)
	}
	args := []any{c.Holder, c.For.Milliseconds(), hex.EncodeToString(c.Key), int64(c.Backend), c.Displaced, c.Run,
		c.Latency.Microseconds()}
	var before int64
	ok, err = pgquery.Row(ctx, db, dispatcherTakeSQL, args, &t.Epoch, &before, &t.Incarnation,
		&t.HasArchive)
	t.Before = time.Duration(before) * time.Millisecond
	return t, ok, pgerr.Explain("take the lease of the dispatcher", err)
}

// DispatcherState is the dispatcher's lease, as other processes see it. Without a lease it is zero.
type DispatcherState struct {
	Holder  string
	Epoch   int64
	Key     []byte
	IsAlive bool
	IsGone  bool // the server process of its connection has ended
	Since   time.Time
	Until   time.Time
	Note    string // why no dispatcher has begun since
}

// LookAtDispatcher reads the state of the dispatcher's lease.
func LookAtDispatcher(ctx context.Context, db ledger.DB) (s DispatcherState, err error) {
	var key string
	_, err = pgquery.Row(ctx, db, dispatcherLookSQL, nil, &s.Holder, &s.Epoch, &key, &s.IsAlive, &s.IsGone,
		pgquery.Micros(&s.Since), pgquery.Micros(&s.Until), &s.Note)
	if err == nil {
		s.Key, err = hex.DecodeString(key)
	}
	return s, pgerr.Explain("look at the lease of the dispatcher", err)
}

// Run is a run of the database's server, with its knowledge about copies of the database.
type Run struct {
	Installation string
	Name         string
	IsConfirmed  bool // no copy works, or no dispatcher has ever begun
	RelayBegins  bool // a relay is about to make sure
	RelayRefuses bool
	HasAnswered  bool // a copy of this installation, within the last minute
}

// ReadRun returns the run for a dispatcher that is about to begin.
func ReadRun(ctx context.Context, db ledger.DB) (r Run, err error) {
	_, err = pgquery.Row(ctx, db, dispatcherRunSQL, nil, &r.Installation, &r.Name, &r.IsConfirmed, &r.RelayBegins,
		&r.RelayRefuses, &r.HasAnswered)
	return r, pgerr.Explain("read the run of the server", err)
}

// RefuseDispatcher records why no dispatcher begins, and whether a copy of the database has answered.
func RefuseDispatcher(ctx context.Context, db ledger.DB, note string, hasAnswered bool) error {
	_, err := db.Exec(ctx, dispatcherRefuseSQL, storable(note), strconv.FormatBool(hasAnswered))
	return pgerr.Explain("record that no dispatcher begins", err)
}

// Holds reports whether a holder still holds a lease, on a primary, in this run of its server.
func Holds(ctx context.Context, db ledger.DB, name, holder, installation, run string) (holds bool, err error) {
	_, err = pgquery.Row(ctx, db, holdsSQL, []any{name, holder, installation, run}, &holds)
	return holds, pgerr.Explain("look at the lease", err)
}

// YieldDispatcher lets another process take the dispatcher's lease at once.
func YieldDispatcher(ctx context.Context, db ledger.DB, holder string) error {
	_, err := db.Exec(ctx, dispatcherYieldSQL, holder)
	return pgerr.Explain("yield the lease of the dispatcher", err)
}

// Session is a live worker's session.
type Session struct {
	Worker   string
	Key      []byte        // public; empty: the worker claims its tasks itself
	Term     time.Duration // of its lease, from each renewal
	Capacity int
	Kinds    []string
	Shards   ledger.ShardSet
	Digest   string // of the lease's detail: all fields but Worker and Term follow from it
}

// Sessions reads the sessions of the live workers. It reads and checks the detail of a lease once. The zero value is
// ready. It is not safe for concurrent use.
type Sessions struct {
	known map[string]*Session // by the digest of the lease's detail; nil: the detail is malformed
}

// Conditions determine which tasks are offered, and in which shares.
type Conditions struct {
	Paused  map[ledger.Kind]bool
	Limits  []StartLimit
	Weights map[string]float64 // by partition; 1 without an entry
}

// StartLimit is a limit of starts, as a dispatcher needs it.
type StartLimit struct {
	Name       string          `json:"name"`
	Kinds      []ledger.Kind   `json:"kinds"`
	Weights    []int           `json:"weights"` // of the kinds
	Per        ledger.LimitPer `json:"per"`
	MaxRunning int             `json:"max_running"` // -1: any number
	Burst      int             `json:"burst"`       // 0: no rate
	WindowUS   int64           `json:"window_us"`
}

// Read returns the sessions of the live workers, and the conditions. It skips malformed leases, which other
// programs can write. The caller must not change data to which the sessions refer.
func (r *Sessions) Read(ctx context.Context, db ledger.DB) (all []Session, c Conditions, err error) {
	rows, err := db.Query(ctx, sessionsSQL, pgarray.Of(slices.Collect(maps.Keys(r.known))...))
	if err != nil {
		return nil, c, pgerr.Explain("read the sessions of workers", err)
	}
	defer rows.Close()
	c = Conditions{Paused: map[ledger.Kind]bool{}}
	current := map[string]*Session{}
	for rows.Next() {
		var kinds []string
		var limits, weights string
		var read Session
		var digest, key, shards string
		var isValid bool
		var term int64
		err := rows.Scan(&kinds, &limits, &weights, &read.Worker, &term, &digest, &isValid, &key,
			&read.Capacity, &read.Kinds, &shards)
		if err != nil {
			return nil, c, pgerr.Explain("read the sessions of workers", err)
		}
		for _, k := range kinds {
			c.Paused[ledger.Kind(k)] = true
		}
		if limits != "" && c.Limits == nil {
			if err := json.Unmarshal([]byte(limits), &c.Limits); err != nil {
				return nil, c, &ledger.CorruptError{What: "limits of starts", Err: err}
			}
		}
		if weights != "" && c.Weights == nil {
			if err := json.Unmarshal([]byte(weights), &c.Weights); err != nil {
				return nil, c, &ledger.CorruptError{What: "weights of partitions", Err: err}
			}
		}
		if read.Worker == "" {
			continue
		}
		detail, isKnown := r.known[digest]
		if !isKnown {
			var invalid1, invalid2 error
			read.Key, invalid1 = hex.DecodeString(key)
			read.Shards, invalid2 = ledger.ParseShardSet(shards)
			if isValid && invalid1 == nil && invalid2 == nil {
				detail = &read
			}
		}
		current[digest] = detail
		if detail != nil {
			s := *detail
			s.Worker, s.Term, s.Digest = read.Worker, time.Duration(term)*time.Millisecond, digest
			all = append(all, s)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, c, pgerr.Explain("read the sessions of workers", err)
	}
	r.known = current
	return all, c, nil
}
