package reconciler

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/is_listed.sql
	isListedSQL string
	//go:embed sql/listed.sql
	listedSQL string
	//go:embed sql/walked.sql
	walkedSQL string
)

// tasksPerPage is how many tasks of the projection one statement reads.
const tasksPerPage = 10_000

// reconcileAll makes the lost tasks of all kinds available again. It reads the unfinished tasks that the projector
// lists. While there is no such list it reads all tasks, finished ones too.
func (r *Reconciler) reconcileAll(ctx context.Context, kinds []*servedKind) error {
	isListed, _, err := r.readList(ctx)
	if err != nil {
		return err
	}
	if isListed {
		return r.reconcileListed(ctx, kinds)
	}
	for _, k := range kinds {
		if err := r.reconcileWalked(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// readList reports whether the list of lingering tasks may be used, and whether there is a task to look at.
func (r *Reconciler) readList(ctx context.Context) (isListed, hasTasks bool, err error) {
	if r.walks {
		return false, true, nil
	}
	err = r.config.DB.QueryRow(ctx, isListedSQL).Scan(&isListed, &hasTasks)
	return isListed, hasTasks, pgerr.Explain("look for the list of lingering tasks", err)
}

// reconcileListed reads the list of lingering tasks.
func (r *Reconciler) reconcileListed(ctx context.Context, kinds []*servedKind) error {
	var names, shards, first, again pgarray.Builder
	for _, k := range kinds {
		names.Add(string(k.name))
		shards.AddInt(int64(k.shards))
		first.Add(pgquery.Time(k.published[ofEnqueued].before))
		again.Add(pgquery.Time(k.published[ofReleased].before))
	}
	var enqueuedAt int64
	var kind, id string
	for isLast := true; isLast; {
		rows, err := r.config.DB.Query(ctx, listedSQL, enqueuedAt, kind, id, int64(tasksPerPage),
			names.String(), shards.String(), first.String(), again.String())
		if err != nil {
			return fmt.Errorf("find lingering tasks: %w", err)
		}
		isLast = false
		found := make(map[ledger.Kind][]string)
		for rows.Next() {
			var mayBeLost bool
			if err := rows.Scan(&enqueuedAt, &kind, &id, &mayBeLost, &isLast); err != nil {
				rows.Close()
				return fmt.Errorf("find lingering tasks: %w", err)
			}
			if mayBeLost {
				found[ledger.Kind(kind)] = append(found[ledger.Kind(kind)], id)
			}
		}
		if err := rows.Err(); err != nil {
			return fmt.Errorf("find lingering tasks: %w", err)
		}
		for _, k := range kinds {
			if err := r.reconcile(ctx, k, found[k.name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// reconcileWalked reads all tasks of a kind.
func (r *Reconciler) reconcileWalked(ctx context.Context, k *servedKind) error {
	id := ""
	for isLast := true; isLast; {
		rows, err := r.config.DB.Query(ctx, walkedSQL, string(k.name), id, int64(tasksPerPage), int64(k.shards),
			pgquery.Time(k.published[ofEnqueued].before), pgquery.Time(k.published[ofReleased].before))
		if err != nil {
			return fmt.Errorf("find tasks of %s: %w", k.name, err)
		}
		isLast = false
		var found []string
		for rows.Next() {
			var mayBeLost bool
			if err := rows.Scan(&id, &mayBeLost, &isLast); err != nil {
				rows.Close()
				return fmt.Errorf("find tasks of %s: %w", k.name, err)
			}
			if mayBeLost {
				found = append(found, id)
			}
		}
		if err := rows.Err(); err != nil {
			return fmt.Errorf("find tasks of %s: %w", k.name, err)
		}
		if err := r.reconcile(ctx, k, found); err != nil {
			return err
		}
	}
	return nil
}
