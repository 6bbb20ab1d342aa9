package archive

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/installation.sql
	installationSQL string
	//go:embed sql/ends.sql
	endsSQL string
)

// segmentTasks is how many tasks are in a segment of a volume of [Tasks].
const segmentTasks = 5000

// TaskEnd is a finished task and its last event.
type TaskEnd struct {
	Key     ledger.Key
	Version ledger.Version
}

// StoreTasks stores all events of finished tasks in a volume, verifies it, and returns its name, which follows from the
// tasks and their last events. A volume that a killed call has completed is verified and not written again. Its memory
// grows with the keys alone. Call it while [LockStore] is held.
//
// Errors: as [Create], [Writer.Close] and [Verify]; [*ledger.CorruptError] if an event is not in the volume.
func StoreTasks(ctx context.Context, db *pgxpool.Pool, s Store, tasks []TaskEnd) (string, error) {
	plan, err := planOf(ctx, db, tasks)
	if err != nil {
		return "", err
	}
	if err := writeTasks(ctx, db, s, plan, tasks); err != nil && !errors.Is(err, ErrExists) {
		return "", err
	}
	if _, err := Verify(ctx, s, &VerifyOptions{Volumes: []string{plan.Name}, Ledger: plan.Ledger}); err != nil {
		return "", fmt.Errorf("volume %s: %w", plan.Name, err)
	}
	return plan.Name, nil
}

// planOf returns the plan of the volume of some tasks. After a restore of the database, a task can end otherwise with
// the same version, so position and time of its end are part of the name.
func planOf(ctx context.Context, db ledger.DB, tasks []TaskEnd) (Plan, error) {
	hash := sha256.New()
	for _, t := range tasks {
		_, _ = fmt.Fprintf(hash, "%s %d\n", t.Key, t.Version)
	}
	for group := range slices.Chunk(tasks, segmentTasks) {
		var kinds, ids, versions pgarray.Builder
		for _, t := range group {
			kinds.Add(string(t.Key.Kind))
			ids.Add(string(t.Key.BizID))
			versions.AddInt(int64(t.Version))
		}
		var digest string
		args := []any{kinds.String(), ids.String(), versions.String()}
		if _, err := pgquery.Row(ctx, db, endsSQL, args, &digest); err != nil {
			return Plan{}, pgerr.Explain("archive tasks", err)
		}
		_, _ = fmt.Fprintln(hash, digest)
	}
	p := Plan{Name: "tasks-" + hex.EncodeToString(hash.Sum(nil)[:8]), Content: Tasks, Kinds: []ledger.Kind{}}
	_, err := pgquery.Row(ctx, db, installationSQL, nil, &p.Ledger)
	p.Ledger = originPrefix + p.Ledger
	return p, pgerr.Explain("archive tasks", err)
}

// writeTasks writes a volume. A volume that a killed call has begun is discarded.
func writeTasks(ctx context.Context, db *pgxpool.Pool, s Store, plan Plan, tasks []TaskEnd) error {
	w, err := Create(ctx, s, plan)
	if err == nil && w.Place() != (Place{}) {
		if err = Discard(ctx, s, plan.Name); err == nil {
			w, err = Create(ctx, s, plan)
		}
	}
	if err != nil {
		return err
	}
	var events int64
	for group := range slices.Chunk(tasks, segmentTasks) {
		n, err := addTasks(ctx, db, w, group)
		if err != nil {
			return err
		}
		events += n
	}
	c, err := WriteTiles(ctx, db, s)
	if err != nil {
		return err
	}
	names, err := ReadLogins(ctx, db, w.LoginIDs())
	if err != nil {
		return err
	}
	m, err := w.Close(ctx, &CloseOptions{Checkpoint: c, Logins: names})
	if err == nil && m.Events != events {
		err = &ledger.CorruptError{What: "volume " + plan.Name, Err: fmt.Errorf("it contains %d events of %d", m.Events,
			events)}
	}
	return err
}

// addTasks writes a segment, and returns the number of its events.
func addTasks(ctx context.Context, db *pgxpool.Pool, w *Writer, tasks []TaskEnd) (int64, error) {
	keys := make([]ledger.Key, len(tasks))
	for i, t := range tasks {
		keys[i] = t.Key
	}
	events, err := seal.ReadTasks(ctx, db, keys)
	if err != nil {
		return 0, err
	}
	ends := make(map[ledger.Key]ledger.Version, len(tasks))
	for i := range events {
		ends[events[i].Key] = max(ends[events[i].Key], events[i].Version)
		if err := w.Add(ctx, &events[i]); err != nil {
			return 0, err
		}
	}
	for _, t := range tasks {
		if ends[t.Key] < t.Version {
			return 0, &ledger.CorruptError{What: "task " + t.Key.String(),
				Err: fmt.Errorf("its last event is version %d, and was %d", ends[t.Key], t.Version)}
		}
	}
	return int64(len(events)), w.Cut(ctx)
}
