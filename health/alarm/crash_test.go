package alarm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/health/alarm"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Variables that tell the test binary to be a watcher, with this file.
const childVariable = "TASKLEDGER_ALARM_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, "child ended:", runChild())
	os.Exit(1)
}

func runChild() error {
	ctx := context.Background()
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	f, err := alarm.Parse([]byte(os.Getenv(childVariable)))
	if err != nil {
		return err
	}
	w, err := alarm.New(alarm.Config{DB: db, File: f, Look: 10 * time.Millisecond})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// killed runs a watcher in a process of its own until the crash point kills it.
func (b *bundle) killed(f alarm.File, point string) {
	b.t.Helper()
	text, err := json.Marshal(f)
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+string(text), "DATABASE_URL="+b.db.Config().ConnString(), fault.Variable+"="+point)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer late.Stop()
	_ = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		b.t.Fatalf("the child was not killed at %s: %v", point, cmd.ProcessState)
	}
}

// Wherever a watcher is killed, its successor sees to it that there is one alarm and that it
// arrives: once, but for who dies between the delivery and the record of it.
func TestWatcherKilled(t *testing.T) {
	t.Parallel()
	for point, want := range map[string]struct{ left, sent int }{
		"alarm.found":   {0, 1},
		"alarm.made":    {1, 1},
		"alarm.started": {1, 1},
		"alarm.sent":    {1, 2},
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b, h := setup(t), newHook(t)
			b.die("coupon.send", "a-", 3, "out of coupons")
			c := b.config(h.receiver("hook"))
			b.killed(c.File, point)
			if left := b.alarms(); len(left) != want.left {
				t.Fatalf("the killed watcher left %+v", left)
			}
			b.background(b.watcher(c).Run)
			b.await("the alarm", func() bool {
				alarms := b.alarms()
				return len(alarms) == 1 && alarms[0].State == ledger.StateSucceeded
			})
			requests := h.got()
			if len(requests) != want.sent {
				t.Errorf("delivered %d times, want %d", len(requests), want.sent)
			}
			for _, r := range requests {
				if m := verified(t, r); m.Alarm != "hook/000000000001" || m.Items[0].Tasks != 3 {
					t.Errorf("told %+v", m)
				}
			}
			ledgertest.Check(t, b.db)
		})
	}
}
