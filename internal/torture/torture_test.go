package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if isPart() {
		os.Exit(runPart())
	}
	os.Exit(m.Run())
}

// Every fault that costs nothing but time acts on the whole product, two or more at once, and every promise holds.
// Longer runs: go run ./internal/torture.
func TestTorture(t *testing.T) {
	t.Parallel()
	var names []string
	for _, f := range faults {
		if f.cost == 0 {
			names = append(names, f.name)
		}
	}
	c := config{seed: 1, duration: 40 * time.Second, patience: 2 * time.Minute, faults: strings.Join(names, ","),
		rate: defaultRate, pgbouncer: "pgbouncer", log: t.Output()}
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
