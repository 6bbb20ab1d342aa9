package main

import (
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A wait that fails after the task was committed reports both: a caller that repeats the command, or enqueues another
// task in its place, must know.
func TestEnqueueReportsATaskThatIsNotAwaited(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, wait, output string
		roles              []string
		exit               int
		stdout, stderr     string
	}{
		{name: "no right to read", wait: "1m", output: "table", roles: []string{"producer"},
			exit: exitUnavailable, stdout: "enqueued k/1\n", stderr: "k/1 is committed; "},
		{name: "no right to read, as JSON", wait: "1m", output: "json", roles: []string{"producer"},
			exit: exitUnavailable, stdout: `"new": true`, stderr: "k/1 is committed; "},
		{name: "time is up", wait: "1ms", output: "json", roles: []string{"producer", "reader"},
			exit: exitTimeout, stdout: `"new": true`, stderr: "k/1 is committed; "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			environment := map[string]string{envDatabaseURL: ledgertest.URL(t, test.roles...)}
			stdout, stderr, exit := run(t, environment, "enqueue", "k", "1", "--wait", test.wait, "-o", test.output)
			if exit != test.exit || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
				t.Errorf("exit %d, %q, %q; want %d, %q, %q", exit, stdout, stderr, test.exit, test.stdout, test.stderr)
			}
		})
	}
}
