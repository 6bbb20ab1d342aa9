package main

import (
	"bytes"
	"regexp"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// On a terminal wait shows the state of the task, and its progress while it runs, until the task has finished.
func TestWaitOnATerminal(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "producer", "reader")
	environment := map[string]string{envDatabaseURL: db.Config().ConnString(), "TERM": "xterm"}
	k := ledgertest.Key(t, "report.make/7")
	ledgertest.Enqueue(t, db, k, `{}`)
	person, program := openTerminal(t)
	a := newApp()
	a.getenv = func(name string) string { return environment[name] }
	exit := make(chan int)
	go func() {
		exit <- a.Run(t.Context(), []string{"wait", "report.make/7"}, program, program, program)
	}()
	if err := person.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var seen bytes.Buffer
	await := func(want string) {
		t.Helper()
		for b := make([]byte, 1<<16); !regexp.MustCompile(want).Match(seen.Bytes()); {
			n, err := person.Read(b)
			if err != nil {
				t.Fatalf("%v, without %q in %q", err, want, seen.String())
			}
			seen.Write(b[:n])
		}
	}
	version := ledger.Version(1)
	record := func(r ledger.AppendRequest) {
		t.Helper()
		r.Key, r.Expected, r.Actor = k, version, "w-1"
		if _, err := ledger.Append(t.Context(), ledgertest.As(t, db, "worker"), r); err != nil {
			t.Fatal(err)
		}
		version++
	}
	await("report.make/7: available")
	record(ledger.AppendRequest{Type: ledger.EventStarted})
	record(ledger.AppendRequest{Type: ledger.EventProgressed, Data: []byte(`{"progress":{"done":3,"total":8}}`)})
	await("report.make/7: running, attempt 1, 38 %")
	record(ledger.AppendRequest{Type: ledger.EventSucceeded})
	await(`state +.*succeeded`)
	if code := <-exit; code != exitOK {
		t.Errorf("exit %d: %q", code, seen.String())
	}
}
