package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/explain"
	"github.com/taskledger/taskledger/ledger"
)

func showTask(ctx context.Context, a *app, pool *pgxpool.Pool, key ledger.Key, asOf when, place string) error {
	moment, wrong := asOf.moment(ctx, pool)
	var task ledger.Task
	err := wrong
	if err == nil {
		task, err = ledger.LoadAsOf(ctx, pool, key, moment)
	}
	if err != nil {
		old, archivedErr := a.readArchived(ctx, pool, key, asOf, place)
		switch {
		case archivedErr != nil:
			return unknownTask(archivedErr, key)
		case old == nil && wrong != nil:
			return wrong
		case old == nil:
			return unknownTaskAsOf(ctx, pool, err, key, moment)
		}
		if task, err = old.task(); err != nil {
			return err
		}
		return printTask(a, task, "")
	}
	why := ""
	if moment == (ledger.Moment{}) {
		if why, err = (explain.Source{DB: pool}).State(ctx, task); err != nil {
			return err
		}
	}
	return printTask(a, task, why)
}

// shownTask is a task as JSON, with the reason why it does not begin or is dead.
type shownTask struct {
	ledger.Task

	Why string `json:"why,omitempty"`
}

// printTask shows a task. why is a sentence, or "".
func printTask(a *app, task ledger.Task, why string) error {
	return a.print(shownTask{task, why}, func(w io.Writer) {
		cause, priority := "", ""
		if task.Priority != 0 {
			priority = fmt.Sprintf("%d (%[1]s)", task.Priority)
		}
		if task.Cause != (ledger.Key{}) {
			cause = task.Cause.String()
		}
		fields := [][2]string{
			{"task", plain(task.Key.String())},
			{"state", painted(task.State)},
		}
		if why != "" {
			fields = append(fields, [2]string{"why", why})
		}
		fields = append(fields, [2]string{"version", strconv.Itoa(int(task.Version))})
		if !task.ArchivedAt.IsZero() {
			at := task.ArchivedAt.UTC().Format(time.RFC3339) + ", " + ago(task.ArchivedAt)
			fields = append(fields, [2]string{"archived", at})
		}
		by := ""
		if task.Actor != "" { // it is erased
			by = " by " + plain(task.Actor)
		}
		if !task.EnqueuedAt.IsZero() { // a wait knows state, version and time of an archived task alone
			fields = append(fields, [][2]string{
				{"attempt", strconv.Itoa(int(task.Attempt))},
				{"failures", strconv.Itoa(task.Failures)},
				{"shard", strconv.Itoa(int(task.Shard))},
				{"enqueued", task.EnqueuedAt.UTC().Format(time.RFC3339) + ", " + ago(task.EnqueuedAt)},
				{"updated", task.UpdatedAt.UTC().Format(time.RFC3339) + ", " + ago(task.UpdatedAt) + by},
			}...)
		}
		for _, f := range []struct {
			name string
			at   time.Time
		}{{"due", task.DueAt}, {"start by", task.StartBy}, {"finish by", task.FinishBy}} {
			if !f.at.IsZero() {
				fields = append(fields, [2]string{f.name, f.at.Format(time.RFC3339)})
			}
		}
		args := "args"
		if task.ArgsEncoding != "" {
			args += " (" + task.ArgsEncoding + ")"
		}
		var after []string
		for _, k := range task.After {
			after = append(after, k.String())
		}
		for _, f := range [][2]string{
			{"priority", priority}, {"partition", task.Partition}, {"order key", task.OrderKey}, {"led by", cause},
			{"after", strings.Join(after, ", ")}, {"error", task.Error}, {"reason", task.Reason},
			{"fingerprint", task.Fingerprint},
			{args, string(task.Args)}, {"progress", string(task.Progress)}, {"result", string(task.Result)}} {
			if f[1] != "" {
				fields = append(fields, [2]string{f[0], plain(f[1])})
			}
		}
		renderFields(w, fields...)
	})
}

// unknownTask returns the error of a task that does not exist, or was archived.
func unknownTask(err error, key ledger.Key) error {
	var archived *ledger.ArchivedError
	switch {
	case errors.As(err, &archived):
		return failf(exitNotFound, "%s", plain(archived.Error())).
			hinted("show it with: taskledger history %s %s; its key stays known, and runs again only by enqueue "+
				"--if-exists rerun, replace or follow", shellWord(string(key.Kind)), shellWord(string(key.BizID)))
	}
	if f := describe(err); f.exit != exitNotFound {
		return err
	}
	if invalid := key.Kind.Validate(); invalid != nil {
		return invalid
	}
	return failf(exitNotFound, "task %s does not exist", key).
		hinted("%s", "list tasks with: taskledger show tasks --kind "+shellWord(string(key.Kind)))
}
