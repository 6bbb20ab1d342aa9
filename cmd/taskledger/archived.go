package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
)

// envArchive is the environment variable of --archive.
const envArchive = "TASKLEDGER_ARCHIVE"

// archiveHint is the cure for an archive that cannot be read.
const archiveHint = "mount the archive, or name its place on this machine with --archive or " + envArchive

// addArchiveFlag adds --archive, of commands that read archived tasks.
func addArchiveFlag(cmd *cobra.Command, place *string) {
	cmd.Flags().StringVar(place, "archive", "",
		"where archived tasks are looked for first (default: the `place` to which they were archived)")
	bind(cmd.Flags(), "archive", envArchive)
}

// archive returns the archived tasks and events, which are looked for at a place first unless it is "".
func (a *app) archive(place string) archive.Source {
	return archive.Source{Place: place, Open: a.openArchive}
}

// archivedTask is a task that is read from an archive.
type archivedTask struct {
	as     *ledger.ArchivedError
	isPast bool           // as it was at some moment
	events []ledger.Event // in the order of positions
}

// readArchived returns an archived task with its events as of a moment, and nil if none was archived with this key, or
// not by then. As of a time, the task consists of the events that were recorded by then.
func (a *app) readArchived(
	ctx context.Context, db ledger.DB, key ledger.Key, asOf when, place string,
) (*archivedTask, error) {
	if err := key.ValidateStored(); err != nil {
		return nil, nil //nolint:nilerr // the caller reports it
	}
	found, err := ledger.Archived(ctx, db, key)
	if err != nil || found[0] == nil {
		return nil, err
	}
	t := &archivedTask{as: found[0], isPast: asOf.isSet()}
	if t.events, err = a.archive(place).Events(ctx, t.as); err != nil {
		return nil, err
	}
	if at := asOf.time(); t.isPast {
		t.events = slices.DeleteFunc(t.events, func(e ledger.Event) bool {
			if asOf.position != 0 {
				return e.Position > asOf.position
			}
			return e.RecordedAt.After(at)
		})
	}
	if len(t.events) == 0 {
		return nil, nil
	}
	return t, nil
}

// task returns the fold of the events.
func (t *archivedTask) task() (task ledger.Task, err error) {
	if t.isPast {
		return archive.Fold(t.events)
	}
	return archive.Task(t.as, t.events)
}

// showHistory shows the events of an archived task, and those up to a version of a task that has repeated its key.
func (t *archivedTask) showHistory(
	ctx context.Context, a *app, db ledger.DB, version ledger.Version, f historyFlags,
) error {
	isShown := func(e ledger.Event) bool { return f.before == 0 || int(e.Version) < f.before }
	if f.limit == 0 {
		for _, e := range t.events {
			if !isShown(e) {
				continue
			}
			if err := a.printJSON(e, ""); err != nil {
				return err
			}
		}
		end := version + 1
		if f.before > 0 {
			end = min(end, ledger.Version(f.before))
		}
		return streamHistory(ctx, a, db, t.as.Key, end)
	}
	all, h := t.events, history{}
	if version == 0 {
		h.ArchivedAt = &t.as.At
	} else {
		o := ledger.NewestOptions{Before: version + 1, Limit: f.limit + 1}
		later, err := ledger.NewestOf(ctx, db, t.as.Key, o)
		if err != nil {
			return err
		}
		all = append(all, later...)
	}
	head := all[len(all)-1]
	h.State, h.Attempt, h.Events = head.Type.State(), head.Attempt, []ledger.Event{}
	for _, e := range all {
		if isShown(e) {
			h.Events = append(h.Events, e)
		}
	}
	h.Events = h.Events[max(0, len(h.Events)-f.limit-1):]
	return h.print(a, t.as.Key, f)
}

// leftOut is a list from the tables that may leave archived tasks out.
type leftOut struct {
	key      string // KIND/BIZ_ID, or its beginning; "": all
	kinds    []ledger.Kind
	from, to ledger.Position // 0: no bound
	isEmpty  bool            // nothing was listed
	by       string          // the command that shows one archived task, without its key
}

// note writes a note for people if the list leaves archived tasks out. A list that is interrupted has none.
func (l leftOut) note(ctx context.Context, a *app, db ledger.DB) error {
	if ctx.Err() != nil {
		return nil
	}
	if key, err := parseKey([]string{l.key}); err == nil && key.Validate() == nil {
		found, err := ledger.Archived(ctx, db, key)
		if err != nil {
			return err
		}
		if found[0] != nil {
			fmt.Fprintf(a.stderr, "%s was archived; it is shown by: %s %s %s\n", plain(key.String()), l.by,
				shellWord(string(key.Kind)), shellWord(string(key.BizID)))
			return nil
		}
	}
	if l.key != "" && !l.isEmpty {
		return nil
	}
	kinds := l.kinds
	if kind, _, ok := strings.Cut(l.key, "/"); ok && len(kinds) == 0 {
		kinds = []ledger.Kind{ledger.Kind(kind)}
	}
	inFiles, inNone, err := feed.Archived(ctx, db, kinds)
	if err != nil {
		return err
	}
	for _, r := range []feed.Removed{inFiles, inNone} {
		if r.Events > 0 && r.Last >= l.from && (l.to == 0 || r.First <= l.to) {
			fmt.Fprintf(a.stderr, "archived tasks are left out; one is shown by: %s KIND BIZ_ID\n", l.by)
			break
		}
	}
	return nil
}
