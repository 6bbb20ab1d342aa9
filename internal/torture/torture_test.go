package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/pgserver"
)

func TestMain(m *testing.M) {
	if isPart() {
		os.Exit(runPart())
	}
	os.Exit(m.Run())
}

// Every fault that costs nothing but time acts on the whole product, two or more at once, and every promise holds.
// Longer runs: go run ./internal/torture. The tests run one after the other: each has twenty processes.
func TestTorture(t *testing.T) {
	var names []string
	for _, f := range faults {
		if f.cost == 0 {
			names = append(names, f.name)
		}
	}
	c := config{seed: 1, duration: 40 * time.Second, patience: 2 * time.Minute, faults: strings.Join(names, ","),
		maxStep: 20 * time.Second, rate: defaultRate, pgbouncer: "pgbouncer", log: t.Output()}
	if testing.Short() {
		c.duration = 10 * time.Second
	}
	if err := c.validate(); err != nil {
		t.Fatal(err)
	}
	r, err := torture(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	r.print(t.Output())
	if len(r.violations) > 0 {
		t.Fail()
	}
	if len(r.record.done) == 0 {
		t.Error("no task was completed: this proves nothing")
	}
}

// A dump is restored again and again while everything runs, and each task ends: also one that was running in the dump
// and that its worker, which lives, has ended since. Not in TestTorture, because fewer rules hold if commits are lost.
func TestRestoresUnderLoad(t *testing.T) {
	c := config{seed: 6, duration: 10 * time.Second, patience: 2 * time.Minute, faults: "restore", rate: defaultRate,
		maxStep: 15 * time.Second, pgbouncer: "pgbouncer", log: t.Output()}
	r, err := torture(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	r.print(t.Output())
	if len(r.violations) > 0 {
		t.Fail()
	}
	switch count, _ := r.stall("restore"); {
	case count == 0 && len(r.skipped) > 0:
		t.Skip("PostgreSQL's binaries lack a client tool")
	case count == 0 || len(r.record.done) == 0:
		t.Errorf("%d restores and %d completions prove nothing", count, len(r.record.done))
	}
}

// PostgreSQL's clock is stepped forwards and backwards while everything runs, and every promise holds.
func TestStepsOfTheDatabaseClock(t *testing.T) {
	if _, err := pgserver.NewClock(t.TempDir()); errors.Is(err, pgserver.ErrNotInstalled) {
		t.Skip(err)
	}
	c := config{seed: 3, duration: 12 * time.Second, patience: 2 * time.Minute, faults: "clock", rate: defaultRate,
		maxStep: 15 * time.Second, pgbouncer: "pgbouncer", log: t.Output()}
	r, err := torture(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	r.print(t.Output())
	if len(r.violations) > 0 {
		t.Fail()
	}
	if count, _ := r.stall("clock"); count == 0 || len(r.record.done) == 0 {
		t.Errorf("%d steps and %d completions prove nothing", count, len(r.record.done))
	}
}
