package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/durably"
	"github.com/taskledger/taskledger/ledger"
)

// enqueueFlags are the options of enqueue.
type enqueueFlags struct {
	args   string
	binary bool
	shard  int
	actor  string
	tags   []string
	retry  string

	dataVersion int
	priority    int
	partition   string
	orderKey    string
	passIfDead  bool
	// checkArchive: see ledger.EnqueueOptions.
	checkArchive bool

	runAt, startBy, finishBy string
	runIn                    time.Duration

	after     []string
	otherwise string
	ifExists  string
	wait      time.Duration

	deferAtMost, throttleFor time.Duration
}

func newEnqueueCommand(a *app) *cobra.Command {
	var f enqueueFlags
	cmd := &cobra.Command{
		Use:   "enqueue KIND BIZ_ID",
		Short: "Enqueue a task, or report that it exists",
		Long: `Enqueue a task, in a transaction of its own. KIND and BIZ_ID name one task. If it exists,
nothing is written, and its state is shown. If it exists with other args, that is a conflict
(exit code 4). --if-exists rerun enqueues the next run of a finished task, --if-exists replace also
replaces args and times of a task that has not begun, and --if-exists follow also lets one more run
follow a task that has begun.

With --wait the command then waits until the task has finished, and prints it, as taskledger wait does.
That needs the role reader in addition to producer. If the wait fails, the task is still committed: the
command prints that it was enqueued, and returns the exit code of the wait.`,
		Example: `  taskledger enqueue coupon.send order-17 --args '{"percent":10}'
  taskledger enqueue report.make 2026-11 --args @report.json --actor alice --tag monthly
  taskledger enqueue reminder.send 17 --run-in 36h --start-by 2026-12-24T18:00:00+01:00
  taskledger enqueue mail.send 17 --retry '{"ladder":[60,300,1200],"attempts":10}'
  taskledger enqueue coupon.send vip-17 --priority 1
  taskledger enqueue import.run 42 --partition tenant-7
  taskledger enqueue account.book 17-3 --order-key account/17
  taskledger enqueue report.mail 2026-11 --after report.make/2026-11 --otherwise cancel
  taskledger enqueue report.make 2026-12 --wait 30s
  taskledger enqueue customer.resync 17 --if-exists rerun
  generate | taskledger enqueue import.run 42 --args -`,
		Args: exactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			key := ledger.Key{Kind: ledger.Kind(args[0]), BizID: ledger.BizID(args[1])}
			return enqueue(cmd.Context(), a, key, f, cmd.Flags().Changed("shard"))
		},
	}
	cmd.Flags().StringVar(&f.args, "args", "", "input of the task as `JSON`, or @file, or - for stdin (default: none)")
	cmd.Flags().BoolVar(&f.binary, "binary", false, "args are bytes and not JSON")
	cmd.Flags().IntVar(&f.shard, "shard", 0, "shard, 0 to 63 (default: hash of BIZ_ID)")
	cmd.Flags().IntVar(&f.dataVersion, "data-version", 1, "version of the format of args, for programs that read old "+
		"tasks")
	addPriorityFlag(cmd, &f.priority,
		"priority among the waiting tasks of its kind: 1 urgent, 2 high, 3 normal, 4 low (default: normal)")
	cmd.Flags().StringVar(&f.partition, "partition", "",
		"`TENANT` or other group: the groups of a kind take turns, see docs/overload.md (default: none)")
	cmd.Flags().StringVar(&f.orderKey, "order-key", "",
		"let it wait for its turn in the line of this `KEY`, such as customer/17 (default: it waits for no other task)")
	cmd.Flags().BoolVar(&f.passIfDead, "pass-if-dead", false, "let the next task in line begin if this one is dead")
	addActorFlag(cmd, &f.actor)
	cmd.Flags().StringArrayVar(&f.tags, "tag", nil, "tag in the task's meta; may be repeated")
	cmd.Flags().StringVar(&f.retry, "retry", "", "retry policy of the task as `JSON`, delays in seconds, "+
		"such as '{\"ladder\":[60,300,1200]}' (default: its kind's)")
	cmd.Flags().StringVar(&f.runAt, "run-at", "",
		"run it at this `TIME`, such as 2026-12-24T18:00:00+01:00 (default: now)")
	addDuration(cmd.Flags(), &f.runIn, "run-in", "run it after this time, such as 90s, 36h or 3d (default: now)")
	cmd.Flags().StringVar(&f.startBy, "start-by", "", "let it expire if it is unstarted at this `TIME`")
	cmd.Flags().StringVar(&f.finishBy, "finish-by", "", "let it expire if it is unfinished at this `TIME`")
	cmd.Flags().StringArrayVar(&f.after, "after", nil,
		"let it wait until this task has succeeded, as `KIND/BIZ_ID`; may be repeated")
	cmd.Flags().StringVar(&f.otherwise, "otherwise", "",
		"if a task of --after is dead or cancelled: cancel, run or wait (default: cancel)")
	cmd.Flags().StringVar(&f.ifExists, "if-exists", "same", "if the task exists: same, ignore, rerun (another run if "+
		"it has finished), replace (also the args of a task that has not begun) or follow (also one more run behind a "+
		"task that has begun)")
	cmd.Flags().BoolVar(&f.checkArchive, "check-archive", false,
		"answer an archived task at once (default: a new task is discarded before it begins)")
	addDuration(cmd.Flags(), &f.deferAtMost, "defer-at-most",
		"with --if-exists replace or follow: be due this long after the run was enqueued at the latest")
	addDuration(cmd.Flags(), &f.throttleFor, "throttle-for",
		"with --if-exists rerun, replace or follow: begin this long after the run before has ended at the earliest")
	addDuration(cmd.Flags(), &f.wait, "wait", "wait this long for its result (default: do not wait)")
	refuseZero(cmd.Flags(), "data-version", "priority", "retry", "run-at", "start-by", "finish-by", "otherwise",
		"defer-at-most", "throttle-for", "order-key")
	return cmd
}

func enqueue(ctx context.Context, a *app, key ledger.Key, f enqueueFlags, sharded bool) error {
	if err := key.Validate(); err != nil {
		return err
	}
	args, err := a.readArgs(f.args)
	if err != nil {
		return err
	}
	options := ledger.EnqueueOptions{
		Actor: actorOr(f.actor), Binary: f.binary, DataVersion: f.dataVersion,
		Priority: ledger.Priority(f.priority), Partition: f.partition, OrderKey: f.orderKey, PassIfDead: f.passIfDead,
		CheckArchive: f.checkArchive,
		Meta:         ledger.Meta{Tags: f.tags, Retry: json.RawMessage(f.retry)},
	}
	if options.IfExists, err = ledger.ParseIfExists(f.ifExists); err != nil {
		return err
	}
	if sharded {
		shard := ledger.Shard(f.shard)
		options.Shard = &shard
	}
	if err := f.setTimes(&options); err != nil {
		return err
	}
	if err := f.setAfter(&options); err != nil {
		return err
	}
	pool, err := a.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	var answer ledger.Enqueued
	err = durably.Do(ctx, pool, func(tx *ledger.Tx) (err error) {
		answer, err = ledger.Enqueue(ctx, tx, key, args, &options)
		return err
	})
	if other, ok := errors.AsType[*ledger.OtherArgsError](err); ok {
		answer, err = other.Existing, nil
	}
	if err != nil {
		return err
	}
	sameArgs := answer.New || answer.SameArgs || options.IfExists == ledger.IfExistsIgnore
	a.wake(ctx, pool)
	var unawaited error
	if f.wait != 0 && sameArgs {
		isShown, err := waitForTask(ctx, a, pool, key, f.wait)
		if isShown || err == nil {
			return err
		}
		a.command = waitCommand // whose role the cure of a missing right names
		failed := a.describe(err)
		failed.message = fmt.Sprintf("%s is committed; %s", key, failed.message)
		unawaited = failed
	}
	if err := a.print(answer, func(w io.Writer) {
		if answer.New && (answer.State == ledger.StateRunning || answer.State == ledger.StateRetrying) {
			fmt.Fprintf(w, "enqueued one more run behind %s, which is %s\n", plain(key.String()), answer.State)
		} else if answer.New {
			fmt.Fprintf(w, "enqueued %s\n", plain(key.String()))
		} else if answer.Archived {
			fmt.Fprintf(w, "%s was archived: it is %s, at version %d\n", plain(key.String()), answer.State,
				answer.Version)
		} else {
			fmt.Fprintf(w, "%s exists: it is %s, at version %d\n", plain(key.String()), answer.State, answer.Version)
		}
	}); err != nil {
		return err
	}
	if unawaited != nil {
		return unawaited
	}
	if !sameArgs {
		hint := "a key names one task: show it with taskledger show task, or choose another BIZ_ID"
		if options.IfExists == ledger.IfExistsSame && !answer.State.Finished() {
			hint += "; to replace its args before it begins: --if-exists replace"
		} else if options.IfExists == ledger.IfExistsSame {
			hint += "; to run it again with these args: --if-exists rerun"
		}
		conflict := failf(exitConflict, "%s; nothing was changed", &ledger.OtherArgsError{Existing: answer})
		return conflict.hinted("%s", hint)
	}
	return nil
}

// addPriorityFlag adds the flag of a task's priority. Only 1 to 4 are valid.
func addPriorityFlag(cmd *cobra.Command, into *int, usage string) {
	cmd.Flags().IntVar(into, "priority", 0, usage)
}

// parseTime parses the time of a flag.
func parseTime(flag, text string) (time.Time, error) {
	t, err := readTime(text)
	if err != nil {
		return t, usagef("--%s must be a time, got %q", flag, text).
			hinted("write it as 2026-12-24T18:00:00Z or 2026-12-24T18:00:00+01:00")
	}
	return t, nil
}

// setTimes parses the times of the task.
func (f enqueueFlags) setTimes(o *ledger.EnqueueOptions) error {
	o.RunIn, o.DeferAtMost, o.ThrottleFor = f.runIn, f.deferAtMost, f.throttleFor
	for _, flag := range []struct {
		name, text string
		into       *time.Time
	}{{"run-at", f.runAt, &o.RunAt}, {"start-by", f.startBy, &o.StartBy}, {"finish-by", f.finishBy, &o.FinishBy}} {
		if flag.text == "" {
			continue
		}
		t, err := parseTime(flag.name, flag.text)
		if err != nil {
			return err
		}
		*flag.into = t
	}
	return nil
}

// setAfter parses the predecessors of the task.
func (f enqueueFlags) setAfter(o *ledger.EnqueueOptions) error {
	o.Otherwise = ledger.Otherwise(f.otherwise)
	if f.wait < 0 {
		return usagef("--wait must not be negative, got %s", f.wait)
	}
	for _, text := range f.after {
		k, err := parseKey([]string{text})
		if err != nil {
			return usagef("--after: %s", err)
		}
		o.After = append(o.After, k)
	}
	return nil
}

// readArgs returns the args from the flag itself, from the file that it names, or from stdin.
func (a *app) readArgs(flag string) (json.RawMessage, error) {
	file, named := strings.CutPrefix(flag, "@")
	switch {
	case flag == "":
		return nil, nil
	case flag == "-":
		return a.readFile("-")
	case !named:
		return json.RawMessage(flag), nil
	}
	return a.readFile(file)
}
