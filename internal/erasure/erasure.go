package erasure

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/erase.sql
	eraseSQL string
	//go:embed sql/keys.sql
	keysSQL string
	//go:embed sql/places.sql
	placesSQL string
)

const (
	// groupTasks is how many tasks a transaction erases.
	groupTasks = 100
	// DefaultWait is the default of [Options].Wait.
	DefaultWait = time.Minute
)

// ErrNotProjected means that the projector has not read the ends of the tasks in time.
var ErrNotProjected = errors.New("the projector has not read the ends of the tasks, so nothing of them is erased yet")

// UnreadableError is an archive that contains tasks by the ledger's record, and cannot be read.
type UnreadableError struct {
	Place string
	Err   error // nil: it contains no volumes
}

// Error states why the archive cannot be read.
func (e *UnreadableError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("the archive %s contains no volumes", e.Place)
	}
	return fmt.Sprintf("the archive %s cannot be read: %s", e.Place, e.Err)
}

// Unwrap returns the error of the store.
func (e *UnreadableError) Unwrap() error { return e.Err }

// Options are the options of [Erase].
type Options struct {
	// Keys are the tasks.
	Keys []ledger.Key
	// Prefix also erases all tasks of its kind whose biz_id begins with its biz_id. Default: none.
	Prefix *ledger.Key
	// Again repeats the erasures that the archives list and the ledger lacks, since it was restored.
	Again bool
	// DryRun erases nothing: the report has the keys of Prefix.
	DryRun bool
	// Archives are archives to rewrite in addition to those in which the ledger has stored tasks, such as exports.
	Archives []string
	// Gone are archives that the ledger has recorded, and that exist no more or have moved to one of Archives.
	Gone []string
	// Open opens an archive. Required.
	Open func(place string) (archive.Store, error)
	// Wait bounds how long Erase waits for the projector. Default: 1 min.
	Wait time.Duration
	// Actor and Reason are recorded. Default of Actor: the database's session_user. Reason is required unless Again
	// or DryRun.
	Actor, Reason string
	// Progress is called after each transaction. Default: disabled.
	Progress func(Report)
}

// Validate returns an [*ledger.InvalidError] if o is invalid.
func (o Options) Validate() error {
	if o.Reason == "" && !o.Again && !o.DryRun {
		return &ledger.InvalidError{Field: "reason", Rule: "must not be empty"}
	}
	for _, k := range o.Keys {
		if err := k.ValidateStored(); err != nil {
			return err
		}
	}
	if o.Prefix != nil && (o.Prefix.Kind.Validate() != nil || o.Prefix.BizID == "") {
		return &ledger.InvalidError{Field: "prefix", Value: o.Prefix.String(),
			Rule: "must be a kind, a slash and the beginning of a biz_id"}
	}
	return operation.CheckReason(o.Reason)
}

// Report is the result of [Erase].
type Report struct {
	Tasks    int64                     `json:"tasks"`  // that are erased, by earlier calls, too
	Events   int64                     `json:"events"` // whose texts were removed from the table
	Archives map[string]archive.Erased `json:"archives"`
	// Keys are the tasks that would be erased, with [Options].DryRun.
	Keys []ledger.Key `json:"keys,omitempty"`
}

// Erase erases tasks, see the package comment. It commits. The login needs the role archiver.
//
// Errors: [*ledger.InvalidError]; [ledger.ErrUnknownTask]; [ErrNotProjected]; [*UnreadableError];
// [*archive.FileError]; errors of stores. The report is valid in each case. Call it again after an error: it continues.
func Erase(ctx context.Context, db *pgxpool.Pool, o Options) (Report, error) {
	e := &eraser{db: db, o: o, report: Report{Archives: make(map[string]archive.Erased)}}
	if err := o.Validate(); err != nil {
		return e.report, fmt.Errorf("erase: %w", err)
	}
	if e.o.Wait == 0 {
		e.o.Wait = DefaultWait
	}
	err := pgx.BeginFunc(ctx, db, func(lock pgx.Tx) error {
		if err := archive.LockErasures(ctx, lock, false); err != nil {
			return err
		}
		e.lock = lock
		return e.run(ctx)
	})
	return e.report, pgerr.Explain("erase", err)
}

// eraser is a call of Erase.
type eraser struct {
	db     *pgxpool.Pool
	lock   pgx.Tx // holds the lock of erasures
	o      Options
	report Report
}

func (e *eraser) run(ctx context.Context) error {
	origin, err := archive.Origin(ctx, e.db)
	if err != nil {
		return err
	}
	stores, err := e.open(ctx, origin)
	if err != nil {
		return err
	}
	for group := range slices.Chunk(e.o.Keys, groupTasks) {
		if err := e.erase(ctx, "", group, false, e.o.Actor, e.o.Reason); err != nil {
			return err
		}
	}
	if e.o.Prefix != nil {
		if err := e.erasePrefix(ctx, origin, stores); err != nil {
			return err
		}
	}
	if e.o.DryRun {
		return nil
	}
	if e.o.Again {
		if err := e.eraseAgain(ctx, origin, stores); err != nil {
			return err
		}
	}
	fault.Point(fault.EraseCommitted)
	for _, p := range slices.Sorted(maps.Keys(stores)) {
		// Without the lock, another erasure may rewrite the same volumes.
		if err := e.lock.Conn().Ping(ctx); err != nil {
			return fmt.Errorf("the lock of erasures is lost: %w", err)
		}
		done, err := archive.ApplyErasures(ctx, e.db, stores[p], func(positions []int64, digests []string) error {
			return archive.EraseSalts(ctx, e.db, positions, digests)
		})
		e.report.Archives[p] = done
		if err != nil {
			return fmt.Errorf("archive %s: %w", p, err)
		}
	}
	return nil
}

// open opens all archives before anything is erased. An archive that lost its volumes is elsewhere. One that contains
// only another ledger's volumes, such as those of the original of a copy, is refused: they would stay as they are.
func (e *eraser) open(ctx context.Context, origin string) (map[string]archive.Store, error) {
	hasVolumes := make(map[string]bool)
	rows, err := e.db.Query(ctx, placesSQL)
	if err != nil {
		return nil, err
	}
	var place string
	var isSure bool
	if _, err := pgx.ForEachRow(rows, []any{&place, &isSure}, func() error {
		hasVolumes[place] = isSure
		return nil
	}); err != nil {
		return nil, err
	}
	for _, p := range e.o.Gone {
		delete(hasVolumes, p)
	}
	for _, p := range e.o.Archives {
		hasVolumes[p] = false
	}
	stores := make(map[string]archive.Store, len(hasVolumes))
	for p, isSure := range hasVolumes {
		s, err := e.o.Open(p)
		if err != nil {
			return nil, err
		}
		volumes, err := archive.ListVolumes(ctx, s)
		if err != nil || isSure && len(volumes) == 0 {
			return nil, &UnreadableError{Place: p, Err: err}
		}
		if isSure || slices.Contains(e.o.Archives, p) {
			if err := checkOrigin(ctx, p, s, volumes, origin, isSure); err != nil {
				return nil, err
			}
		}
		stores[p] = s
	}
	return stores, nil
}

// checkOrigin returns an [*ledger.InvalidError] if all volumes are another ledger's. isRecorded: by its record, this
// ledger stored tasks there.
func checkOrigin(
	ctx context.Context, place string, s archive.Store, volumes []string, origin string, isRecorded bool,
) error {
	other := ""
	for _, v := range volumes {
		m, err := archive.ReadManifest(ctx, s, v)
		if err != nil {
			return &UnreadableError{Place: place, Err: err}
		}
		if m.Ledger == origin {
			return nil
		}
		other = m.Ledger
	}
	if other == "" {
		return nil
	}
	cure := "erase in that ledger, or remove the archive if it was imported and exported again"
	if isRecorded {
		cure = "erase in that ledger too, and leave the archive out here with --gone"
	}
	return &ledger.InvalidError{Field: "archive", Value: place, Rule: "must contain volumes of this ledger, and " +
		"these are of " + other + ": " + cure}
}

// erase erases a group of tasks as one act. It tries again until the projector has read their ends.
func (e *eraser) erase(
	ctx context.Context, id string, keys []ledger.Key, acceptsUnknown bool, actor, reason string,
) error {
	if e.o.DryRun {
		e.report.Keys = append(e.report.Keys, keys...)
		return nil
	}
	var kinds, ids pgarray.Builder
	for _, k := range keys {
		kinds.Add(string(k.Kind))
		ids.Add(string(k.BizID))
	}
	accepts := int64(0)
	if acceptsUnknown {
		accepts = 1
	}
	args := []any{pgquery.Optional(id), kinds.String(), ids.String(), accepts,
		ledger.Event{Type: ledger.EventBuried}.ErrorFingerprint(), pgquery.Optional(actor), reason}
	backoff := loop.Backoff{Min: 10 * time.Millisecond, Max: 500 * time.Millisecond}
	for began := time.Now(); ; {
		var isWaiting bool
		var tasks, events int64
		var unknown string
		if _, err := pgquery.Row(ctx, e.db, eraseSQL, args, &isWaiting, &tasks, &events, &unknown); err != nil {
			return err
		}
		if unknown != "" {
			return fmt.Errorf("%s: %w", unknown, ledger.ErrUnknownTask)
		}
		if !isWaiting {
			e.report.Tasks += tasks
			e.report.Events += events
			if e.o.Progress != nil {
				e.o.Progress(e.report)
			}
			return nil
		}
		fault.Point(fault.EraseCancelled)
		if time.Since(began) > e.o.Wait {
			return fmt.Errorf("%s: %w", keys[0], ErrNotProjected)
		}
		if err := loop.Sleep(ctx, backoff.Next()); err != nil {
			return err
		}
	}
}

// erasePrefix erases the tasks with a prefix: those in the table, and then the archived ones.
func (e *eraser) erasePrefix(ctx context.Context, origin string, stores map[string]archive.Store) error {
	kind, prefix := e.o.Prefix.Kind, string(e.o.Prefix.BizID)
	isErased := make(map[ledger.Key]bool)
	for after, isEnd := "", false; !isEnd; {
		ids, err := pgquery.Texts(ctx, e.db, keysSQL, string(kind), prefix, after, int64(groupTasks))
		if err != nil {
			return err
		}
		isEnd = len(ids) < groupTasks
		var keys []ledger.Key
		for _, id := range ids {
			if after = id; !strings.HasPrefix(id, prefix) {
				isEnd = true
				break
			}
			key := ledger.Key{Kind: kind, BizID: ledger.BizID(id)}
			keys, isErased[key] = append(keys, key), true
		}
		if len(keys) == 0 {
			break
		}
		if err := e.erase(ctx, "", keys, true, e.o.Actor, e.o.Reason); err != nil {
			return err
		}
	}
	var keys []ledger.Key
	for _, s := range stores {
		err := archive.FindTasks(ctx, s, origin, kind, prefix, func(k ledger.Key) error {
			keys = append(keys, k)
			return nil
		})
		if err != nil {
			return err
		}
	}
	keys = slices.DeleteFunc(keys, func(k ledger.Key) bool { return isErased[k] })
	slices.SortFunc(keys, func(a, b ledger.Key) int { return strings.Compare(string(a.BizID), string(b.BizID)) })
	for group := range slices.Chunk(slices.Compact(keys), groupTasks) {
		if err := e.erase(ctx, "", group, true, e.o.Actor, e.o.Reason); err != nil {
			return err
		}
	}
	return nil
}

// eraseAgain repeats the erasures that the archives list, as the same acts.
func (e *eraser) eraseAgain(ctx context.Context, origin string, stores map[string]archive.Store) error {
	for _, s := range stores {
		listed, err := archive.LostErasures(ctx, e.db, s, origin)
		if err != nil {
			return err
		}
		for _, other := range stores {
			if err := archive.ReopenErasures(ctx, other, listed); err != nil {
				return err
			}
		}
		for _, act := range listed {
			keys := make([]ledger.Key, len(act.Tasks))
			for i, t := range act.Tasks {
				keys[i] = t.Key
			}
			if err := e.erase(ctx, act.ID, keys, true, act.Actor, act.Reason); err != nil {
				return err
			}
		}
	}
	return nil
}
