package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/explain"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// waitPoll is the time between two reads of a task that the command waits for, in addition to the messages of NATS.
const waitPoll = 200 * time.Millisecond

// waitCommand is the command whose role may wait.
const waitCommand = "taskledger wait"

func newWaitCommand(a *app) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait KIND BIZ_ID",
		Short: "Wait until a task has finished, and show it",
		Long: `Wait until a task has finished, and show it. NATS, if it is found, wakes the command at once; it
also reads the task five times a second. On a terminal, a bar shows its state and its newest progress. The
exit code is

  0  the task succeeded
  3  there is no such task
  8  the time of --timeout is up; the task runs on
  9  the task is dead, cancelled, expired or discarded; it is shown, too`,
		Example: "  taskledger wait report.make 2026-11 --timeout 30s\n" +
			"  taskledger wait report.make/2026-11 -o json",
		Args: keyArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := parseKey(args)
			if err != nil {
				return err
			}
			if timeout < 0 {
				return usagef("--timeout must not be negative, got %s", timeout)
			}
			pool, err := a.openDatabase(cmd.Context())
			if err != nil {
				return err
			}
			defer pool.Close()
			_, err = waitForTask(cmd.Context(), a, pool, key, timeout)
			return err
		},
	}
	addDuration(cmd.Flags(), &timeout, "timeout", "wait at most this long, such as 30s (default: without limit)")
	refuseZero(cmd.Flags(), "timeout")
	return cmd
}

// waitForTask waits for a task, at most for timeout if that is not 0, and shows it when it has finished.
func waitForTask(
	ctx context.Context, a *app, pool *pgxpool.Pool, key ledger.Key, timeout time.Duration,
) (isShown bool, err error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	silent := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	nc, err := a.connectNATS(a.config.natsURL != "", silent)
	switch {
	case err == nil:
		defer nc.Close()
	case a.config.natsURL != "":
		return false, err
	default:
		nc = nil // it asks the database alone
	}
	w, err := outbox.NewWaiter(outbox.WaiterConfig{DB: pool, NATS: nc, PollEvery: waitPoll})
	if err != nil {
		return false, err
	}
	defer w.Close()
	stop := a.showState(ctx, pool, key)
	task, err := ledger.Wait(ctx, w, key)
	stop()
	if !task.State.Finished() {
		return false, unknownTask(err, key)
	}
	if printErr := printTask(a, task, ""); printErr != nil {
		return true, printErr
	}
	return true, err
}

// showEvery is the time between two states of a task on the terminal.
const showEvery = 500 * time.Millisecond

// showState shows the state and the progress of a task on a terminal, until stop is called.
func (a *app) showState(ctx context.Context, db ledger.DB, key ledger.Key) (stop func()) {
	if !a.onTerminal() || a.config.output != formatTable {
		return func() {}
	}
	bar, stopBar := a.bar("waiting for "+plain(key.String()), 0)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if task, err := ledger.Load(ctx, db, key); err == nil { // else the wait itself returns the error
				text, share := taskState(task)
				bar.UpdateMessage(text)
				if share > 0 {
					bar.UpdateTotal(100)
					bar.SetValue(min(share, 99)) // the bar ends with the task
				}
			}
			if loop.Sleep(ctx, showEvery) != nil {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
		stopBar()
	}
}

// taskState returns the state of a task in words, and its progress in percent, 0 without any.
func taskState(t ledger.Task) (text string, share int64) {
	text = plain(t.Key.String()) + ": " + string(t.State)
	if t.Attempt > 0 {
		text += fmt.Sprintf(", attempt %d", t.Attempt)
	}
	if t.State != ledger.StateRunning {
		return text, 0
	}
	percent, isKnown := explain.Progress(t.Progress)
	if isKnown {
		text += fmt.Sprintf(", %.0f %%", percent)
	}
	return text, int64(percent)
}
