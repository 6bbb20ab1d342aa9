package archive

import (
	"context"
	_ "embed"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/erasures.sql
	erasuresSQL string
	//go:embed sql/erasure_acts.sql
	erasureActsSQL string
	//go:embed sql/erasure_lock.sql
	erasureLockSQL string
	//go:embed sql/erasure_lock_shared.sql
	erasureLockSharedSQL string
	//go:embed sql/store_lock.sql
	storeLockSQL string
	//go:embed sql/erase_salts.sql
	eraseSaltsSQL string
)

// Erasure is an act that has removed data, meta and actor of tasks, as an archive lists it.
type Erasure struct {
	Format string       `json:"format"` // "erasures of taskledger v1"
	ID     string       `json:"id"`
	Ledger string       `json:"ledger"` // the ledger's origin
	At     time.Time    `json:"at"`
	Actor  string       `json:"actor"`
	Reason string       `json:"reason"`
	Tasks  []ErasedTask `json:"tasks"`
}

// ErasedTask is a task, and the position above which its events are not erased.
type ErasedTask struct {
	ledger.Key

	Until ledger.Position `json:"until"`
}

const (
	erasureFormat  = "erasures of taskledger v1"
	erasuresPrefix = "erasures/"
	listedSuffix   = ".json" // the act is listed
	doneSuffix     = ".done" // all volumes are rewritten
)

// erasuresOf begins the names of the erasures of a ledger.
func erasuresOf(origin string) string {
	return erasuresPrefix + strings.ReplaceAll(strings.TrimPrefix(origin, originPrefix), "/", "-") + "/"
}

// Origin returns the origin of a ledger.
func Origin(ctx context.Context, db ledger.DB) (string, error) {
	var installation string
	_, err := pgquery.Row(ctx, db, installationSQL, nil, &installation)
	return originPrefix + installation, pgerr.Explain("read the installation", err)
}

// Erasures returns the erasures of a ledger that an archive lists.
//
// Errors: [*FileError]; errors of the store.
func Erasures(ctx context.Context, s Store, origin string) (all []Erasure, err error) {
	names, err := s.List(ctx, erasuresOf(origin))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, listedSuffix) {
			continue
		}
		text, err := s.Get(ctx, name, 0, -1)
		if err != nil {
			return nil, err
		}
		var e Erasure
		if err := decodeFile(name, text, &e); err != nil {
			return nil, err
		}
		if e.Format != erasureFormat || e.Ledger != origin || path.Base(name) != e.ID+listedSuffix {
			return nil, &FileError{File: name, Problem: "it is not an erasure of the ledger " + origin}
		}
		all = append(all, e)
	}
	return all, nil
}

// LostErasures returns the erasures that an archive lists and its ledger lacks, because it was restored.
func LostErasures(ctx context.Context, db ledger.DB, s Store, origin string) ([]Erasure, error) {
	acts, err := pgquery.Texts(ctx, db, erasureActsSQL)
	if err != nil {
		return nil, pgerr.Explain("read erasures", err)
	}
	listed, err := Erasures(ctx, s, origin)
	return slices.DeleteFunc(listed, func(e Erasure) bool { return slices.Contains(acts, e.ID) }), err
}

// ReopenErasures makes the next call of [ApplyErasures] complete acts that an archive has completed, because a restored
// ledger may have stored their texts there again. Call it before the acts are repeated.
func ReopenErasures(ctx context.Context, s Store, acts []Erasure) error {
	for _, e := range acts {
		if err := s.Delete(ctx, erasuresOf(e.Ledger)+e.ID+doneSuffix); err != nil {
			return err
		}
	}
	return nil
}

// Erased is the result of [ApplyErasures].
type Erased struct {
	Volumes int   `json:"volumes"` // rewritten
	Events  int64 `json:"events"`  // erased in them
	// Unfinished are exports that have not ended: they may contain what was erased, until the export is run again.
	Unfinished []string `json:"unfinished,omitempty"`
}

// ApplyErasures erases in an archive what was erased in its ledger, and lists these acts there. It rewrites the
// volumes that contain events of these tasks: positions, order and leaves stay. It also completes a call that was
// killed. An act that the archive lists and the ledger lacks, because the ledger was restored, is completed, too. Call
// it while [LockErasures] is held. db needs the role reader.
//
// digests is called with the positions and the digests of the erased events that were sealed, before a volume is
// replaced. Nil: the salts in the ledger stay.
//
// Errors: [*FileError]; errors of the store.
func ApplyErasures(
	ctx context.Context, db ledger.DB, s Store, digests func(positions []int64, digests []string) error,
) (report Erased, err error) {
	origin, err := Origin(ctx, db)
	if err != nil {
		return report, err
	}
	pending, err := pendingErasures(ctx, db, s, origin)
	if err != nil || len(pending) == 0 {
		return report, err
	}
	for _, e := range pending {
		text, err := marshalFile(e)
		if err != nil {
			return report, err
		}
		if err := s.Put(ctx, erasuresOf(origin)+e.ID+listedSuffix, text); err != nil && !errors.Is(err, ErrExists) {
			return report, err
		}
	}
	fault.Point(fault.EraseListed)
	if report.Unfinished, err = discardUnfinished(ctx, s, origin); err != nil {
		return report, err
	}
	r, err := Open(ctx, s)
	if err != nil {
		return report, err
	}
	of := untilOf(pending)
	for _, m := range r.volumes {
		if m.Ledger != origin {
			continue
		}
		n, err := (&eraser{store: s, manifest: m, of: of, digests: digests}).run(ctx)
		if err != nil {
			return report, err
		}
		if n > 0 {
			report.Volumes++
		}
		report.Events += n
	}
	if len(report.Unfinished) > 0 {
		return report, nil
	}
	for _, e := range pending {
		name := erasuresOf(origin) + e.ID + doneSuffix
		if err := s.Put(ctx, name, []byte("{}\n")); err != nil && !errors.Is(err, ErrExists) {
			return report, err
		}
	}
	return report, nil
}

// CatchUp calls [ApplyErasures] if an archive lacks erasures. The caller does not hold [LockErasures].
func CatchUp(
	ctx context.Context, db *pgxpool.Pool, s Store, digests func(positions []int64, digests []string) error,
) error {
	origin, err := Origin(ctx, db)
	if err != nil {
		return err
	}
	if pending, err := pendingErasures(ctx, db, s, origin); err != nil || len(pending) == 0 {
		return err
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := LockErasures(ctx, tx, false); err != nil {
			return err
		}
		_, err := ApplyErasures(ctx, db, s, digests)
		return err
	})
}

// untilOf returns the position up to which each task is erased.
func untilOf(erasures []Erasure) map[ledger.Key]ledger.Position {
	of := make(map[ledger.Key]ledger.Position)
	for _, e := range erasures {
		for _, t := range e.Tasks {
			of[t.Key] = max(of[t.Key], t.Until)
		}
	}
	return of
}

// pendingErasures returns the erasures that are not done in an archive.
func pendingErasures(ctx context.Context, db ledger.DB, s Store, origin string) (pending []Erasure, err error) {
	acts, err := pgquery.Texts(ctx, db, erasureActsSQL)
	if err != nil {
		return nil, pgerr.Explain("read erasures", err)
	}
	names, err := s.List(ctx, erasuresOf(origin))
	if err != nil {
		return nil, err
	}
	isDone := func(id string) bool { return slices.Contains(names, erasuresOf(origin)+id+doneSuffix) }
	if len(names) > 0 {
		listed, err := Erasures(ctx, s, origin)
		if err != nil {
			return nil, err
		}
		// An act that the ledger has, too, stays: a restored ledger's positions may end before those of the files.
		pending = slices.DeleteFunc(listed, func(e Erasure) bool { return isDone(e.ID) })
	}
	acts = slices.DeleteFunc(acts, isDone)
	if len(acts) == 0 {
		return pending, nil
	}
	found, err := readErasures(ctx, db, origin, acts)
	return append(pending, found...), err
}

// readErasures reads acts from the ledger.
func readErasures(ctx context.Context, db ledger.DB, origin string, ids []string) (all []Erasure, err error) {
	rows, err := db.Query(ctx, erasuresSQL, pgarray.Of(ids...))
	if err != nil {
		return nil, pgerr.Explain("read erasures", err)
	}
	e, t := Erasure{Format: erasureFormat, Ledger: origin}, ErasedTask{}
	_, err = pgx.ForEachRow(rows, []any{&e.ID, (*string)(&t.Kind), (*string)(&t.BizID), (*int64)(&t.Until),
		pgquery.Micros(&e.At), &e.Actor, &e.Reason}, func() error {
		if n := len(all); n == 0 || all[n-1].ID != e.ID {
			all = append(all, e)
			all[n].At = e.At.UTC()
		}
		last := &all[len(all)-1]
		last.Tasks = append(last.Tasks, t)
		return nil
	})
	return all, pgerr.Explain("read erasures", err)
}

// discardUnfinished removes volumes of tasks that a killed run of the archive has left, since none is at work. It
// returns the names of unfinished exports.
func discardUnfinished(ctx context.Context, s Store, origin string) (exports []string, err error) {
	plans, err := Unfinished(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, p := range plans {
		switch {
		case p.Ledger != origin:
		case p.Content == Tasks:
			if err := Discard(ctx, s, p.Name); err != nil {
				return nil, err
			}
		default:
			exports = append(exports, p.Name)
		}
	}
	return exports, nil
}

// LockErasures keeps runs of the archive and other erasures out until the transaction ends, after it has waited for
// them. With isShared it keeps only erasures out.
func LockErasures(ctx context.Context, tx pgx.Tx, isShared bool) error {
	sql := erasureLockSQL
	if isShared {
		sql = erasureLockSharedSQL
	}
	_, err := tx.Exec(ctx, sql)
	return pgerr.Explain("wait for erasures", err)
}

// LockStore keeps other calls of [StoreTasks] for the archive at a place out until the transaction ends, after it has
// waited for them: two of the same tasks would write one volume, and the second discards what the first has begun. Call
// it after [LockErasures].
func LockStore(ctx context.Context, tx pgx.Tx, place string) error {
	_, err := tx.Exec(ctx, storeLockSQL, place)
	return pgerr.Explain("wait for another run of the archive", err)
}

// EraseSalts replaces the salts of archived events in the seal, for [ApplyErasures]. It needs the role archiver.
func EraseSalts(ctx context.Context, db ledger.DB, positions []int64, digests []string) error {
	var places pgarray.Builder
	for _, p := range positions {
		places.AddInt(p)
	}
	var n int64
	_, err := pgquery.Row(ctx, db, eraseSaltsSQL, []any{places.String(), pgarray.Of(digests...)}, &n)
	return pgerr.Explain("erase salts", err)
}

// erase removes data, meta and actor of an event, and replaces its salt by the digest. It returns false if nothing is
// to be removed. The event that gives a task its turn in its line stays, as in the ledger.
func erase(r *Record) bool {
	isTurn := r.Type == string(ledger.EventReleased) && r.Data != nil &&
		strings.HasPrefix(*r.Data, `{"reason":"turn"`)
	if isTurn || r.Data == nil && r.Meta == nil && r.Actor == nil && len(r.Salt) != saltBytes {
		return false
	}
	if len(r.Salt) == saltBytes {
		digest := r.Digest(r.Salt)
		r.Salt = digest[:]
	}
	r.Data, r.Meta, r.Actor = nil, nil, nil
	return true
}

// saltBytes is the length of a salt that was not replaced by a digest.
const saltBytes = 16

// FindTasks calls f with the keys of a kind whose biz_id begins with a prefix, in the volumes of a ledger. It reads all
// events of the archive.
//
// Errors: errors of f and of the store; [*FileError].
func FindTasks(
	ctx context.Context, s Store, origin string, kind ledger.Kind, prefix string, f func(ledger.Key) error,
) error {
	r, err := Open(ctx, s)
	if err != nil {
		return err
	}
	r.volumes = slices.DeleteFunc(r.volumes, func(m *Manifest) bool { return m.Ledger != origin })
	return r.Range(ctx, 0, func(e Record) error {
		if e.Version != 1 || e.Kind != kind || !strings.HasPrefix(string(e.BizID), prefix) {
			return nil
		}
		return f(e.Key)
	})
}
