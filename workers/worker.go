package workers

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/worker_list.sql
	workerListSQL string
	//go:embed sql/worker_counts.sql
	workerCountsSQL string
)

// Worker is a worker process as its lease describes it.
type Worker struct {
	ID    string       `json:"id"`
	Since time.Time    `json:"since"`
	Alive bool         `json:"alive"` // false: its process ended without releasing its lease, or is cut off
	Kinds []WorkerKind `json:"kinds"` // by name
	// Version is the version of the program's main module, or its revision; empty if unknown.
	Version string `json:"version,omitempty"`
	// Names are the names that workers over HTTP gave to a process of serve: at most the first 20 of them.
	Names []string `json:"names,omitempty"`
}

// WorkerKind is a kind that a worker handles.
type WorkerKind struct {
	Kind      ledger.Kind     `json:"kind"`
	Guarantee Guarantee       `json:"guarantee"`
	Shards    ledger.ShardSet `json:"shards"`         // whose tasks it takes
	Paused    bool            `json:"paused"`         // by an operator: the worker starts none of its tasks
	Load      *WorkerLoad     `json:"load,omitempty"` // nil: not reported, for example by a worker in SQL
}

// leaseDetail is the detail of a worker's lease.
type leaseDetail struct {
	Kinds      []string        `json:"kinds"`
	Guarantees guarantees      `json:"guarantees,omitempty"`
	Shards     ledger.ShardSet `json:"shards"`
	Repeating  []repeatedTask  `json:"repeating,omitempty"` // package operator reads it
	Load       json.RawMessage `json:"load,omitempty"`      // a map of WorkerLoad by kind
	Version    json.RawMessage `json:"version,omitempty"`   // a text
	Names      json.RawMessage `json:"names,omitempty"`     // an array of texts

	// Of a worker that asks the dispatcher for tasks, see internal/lease.Session.
	Key      string `json:"key,omitempty"`
	Capacity int    `json:"capacity,omitempty"`
	// Kinds whose starts it records first, because other workers claim their tasks: see taskledger_internal.may_claim.
	Records []string `json:"records,omitempty"`
}

// repeatedTask is a kind's task whose attempts this worker repeats most often without an event.
type repeatedTask struct {
	Kind  ledger.Kind  `json:"kind"`
	BizID ledger.BizID `json:"biz_id"`
	Times int          `json:"times"`
	Since time.Time    `json:"since"`
	Error string       `json:"error"`
}

const (
	// minRepeats is how often in a row an attempt must be repeated to be in the lease. A single deadlock is usual.
	minRepeats = 3
	// maxRepeatedKinds bounds the size of the lease.
	maxRepeatedKinds = 20
)

// repeating returns the repeated tasks of the pool, by kind.
func (p *Pool) repeating() (all []repeatedTask) {
	for _, k := range p.registered() {
		r, found := k.Repeating()
		if found && r.Times >= minRepeats && len(all) < maxRepeatedKinds {
			all = append(all, repeatedTask{
				Kind: k.Name, BizID: r.BizID, Times: r.Times, Since: r.Since.UTC(), Error: r.Error,
			})
		}
	}
	return all
}

// isSameTasks reports whether two lists contain the same tasks, however often they were repeated.
func isSameTasks(a, b []repeatedTask) bool {
	return slices.EqualFunc(a, b, func(a, b repeatedTask) bool { return a.Kind == b.Kind && a.BizID == b.BizID })
}

// ReadWorkers returns at most limit workers whose ids follow after, by id; "" is before the first: the live workers and
// the workers lost within about a day. There are fewer only if no others follow. It skips malformed leases, which other
// programs can write. It never commits. Errors: [*ledger.InvalidError] if limit is less than 1,
// [ledger.ErrNotMigrated].
func ReadWorkers(ctx context.Context, db ledger.DB, after string, limit int) (all []Worker, err error) {
	if err := lists.CheckLimit(limit); err != nil {
		return nil, fmt.Errorf("read workers: %w", err)
	}
	for isMore := true; isMore && err == nil; {
		all, after, isMore, err = appendWorkers(ctx, db, all, after, limit)
	}
	if err != nil {
		return nil, pgerr.Explain("read workers", err)
	}
	return all, nil
}

// ReadLiveCounts returns the number of live workers of each kind with any. It never commits. It returns
// [ledger.ErrNotMigrated] if the schema is missing.
func ReadLiveCounts(ctx context.Context, db ledger.DB) (map[ledger.Kind]int64, error) {
	rows, err := db.Query(ctx, workerCountsSQL)
	if err != nil {
		return nil, pgerr.Explain("count workers", err)
	}
	defer rows.Close()
	counts := make(map[ledger.Kind]int64)
	for rows.Next() {
		var kind ledger.Kind
		var n int64
		if err := rows.Scan((*string)(&kind), &n); err != nil {
			return nil, pgerr.Explain("count workers", err)
		}
		counts[kind] = n
	}
	return counts, pgerr.Explain("count workers", rows.Err())
}

// appendWorkers appends the workers after an id, up to limit in all. It returns the last id that it read, and whether
// others may follow: it skips malformed leases.
func appendWorkers(ctx context.Context, db ledger.DB, all []Worker, after string, limit int) (
	more []Worker, last string, isMore bool, err error) {
	most := limit - len(all)
	rows, err := db.Query(ctx, workerListSQL, after, int64(most))
	if err != nil {
		return nil, "", false, err
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var w Worker
		var left int64
		var detailText, pausedText string
		err := rows.Scan(&w.ID, pgquery.Micros(&w.Since), &left, &detailText, &pausedText)
		if err != nil {
			return nil, "", false, err
		}
		w.Alive, after = left > 0, w.ID
		if w.describe(detailText, pausedText) == nil {
			all = append(all, w)
		}
	}
	return all, after, n == most && len(all) < limit, rows.Err()
}

// describe sets the detail of the worker's lease.
func (w *Worker) describe(detailText, pausedText string) error {
	var detail leaseDetail
	var paused []ledger.Kind
	err := errors.Join(
		json.Unmarshal([]byte(detailText), &detail),
		json.Unmarshal([]byte(pausedText), &paused))
	if err != nil {
		return err
	}
	load := parseLoads(detail.Load)
	guarantee := detail.Guarantees.byKind()
	w.Kinds = make([]WorkerKind, len(detail.Kinds))
	for i, name := range detail.Kinds {
		k := WorkerKind{
			Kind: ledger.Kind(name), Guarantee: cmp.Or(guarantee[name], ExactlyOnce), Shards: detail.Shards,
			Paused: slices.Contains(paused, ledger.Kind(name)),
		}
		if l, isKnown := load[k.Kind]; isKnown {
			k.Load = &l
		}
		w.Kinds[i] = k
	}
	w.Version, w.Names = parseVersion(detail.Version), parseNames(detail.Names)
	return nil
}
