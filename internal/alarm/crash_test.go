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

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/longtest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// childVariable is the environment variable that makes the test binary a watcher with this file of alarms.
const childVariable = "TASKLEDGER_ALARM_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(longtest.Run(m))
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
	c := alarm.Config{DB: db, File: f}
	c.SetInterval(10 * time.Millisecond)
	w, err := alarm.New(c)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// runUntilKilled runs a watcher in a process of its own until the crash point kills it.
func (b *bundle) runUntilKilled(f alarm.File, point string) {
	b.t.Helper()
	text, err := json.Marshal(f)
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+string(text),
		"DATABASE_URL="+b.db.Config().ConnString(), fault.Variable+"="+point)
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

// After a watcher is killed at any point, the next one creates or delivers the one alarm. It is delivered once,
// except after a kill between the delivery and its record.
func TestWatcherKilled(t *testing.T) {
	t.Parallel()
	for point, want := range map[string]struct{ alarms, deliveries int }{
		"alarm.found":   {alarms: 0, deliveries: 1},
		"alarm.made":    {alarms: 1, deliveries: 1},
		"alarm.started": {alarms: 1, deliveries: 1},
		"alarm.sent":    {alarms: 1, deliveries: 2},
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b, h := setup(t), newWebhookServer(t)
			b.die("coupon.send", "a-", 3, "out of coupons")
			c := b.config(h.receiver("hook"))
			b.runUntilKilled(c.File, point)
			if alarms := b.alarms(); len(alarms) != want.alarms {
				t.Fatalf("after the kill: alarms %+v", alarms)
			}
			b.background(b.watcher(c).Run)
			b.await("the alarm", func() bool {
				alarms := b.alarms()
				return len(alarms) == 1 && alarms[0].State == ledger.StateSucceeded
			})
			requests := h.got()
			if len(requests) != want.deliveries {
				t.Errorf("delivered %d times, want %d", len(requests), want.deliveries)
			}
			for _, r := range requests {
				if m := verified(t, r); m.Alarm != "hook/0000000000000000001" || m.Items[0].Tasks != 3 {
					t.Errorf("reported %+v", m)
				}
			}
			ledgertest.Check(t, b.db)
		})
	}
}
