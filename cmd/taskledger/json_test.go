package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// examples are command lines that succeed, one for every command. They run in the order of the tree's walk,
// on one database, each once for every OUTPUT.
var examples = map[string]string{
	"taskledger alarm list":     "alarm list",
	"taskledger alarm test":     "alarm test --alarms testdata/alarms.json",
	"taskledger database-url":   "database-url",
	"taskledger enqueue":        "enqueue coupon.send order-17",
	"taskledger illegal list":   "illegal list",
	"taskledger kind list":      "kind list",
	"taskledger kind pause":     "kind pause nothing-OUTPUT",
	"taskledger kind resume":    "kind resume nothing-OUTPUT",
	"taskledger limit list":     "limit list",
	"taskledger limit remove":   "limit remove nothing",
	"taskledger limit set":      "limit set nothing 10",
	"taskledger migrate sql":    "migrate sql",
	"taskledger migrate roles":  "migrate roles --print --prefix shop",
	"taskledger migrate status": "migrate status",
	"taskledger migrate up":     "migrate up",
	"taskledger nats-config":    "nats-config --subscriber mails",
	"taskledger parked list":    "parked list",
	"taskledger parked retry":   "parked retry --all",
	"taskledger parked discard": "parked discard --all",
	"taskledger rebase":         "rebase",

	"taskledger projection list":    "projection list",
	"taskledger projection parked":  "projection parked tasks",
	"taskledger projection rebuild": "projection rebuild tasks",
	"taskledger projection verify":  "projection verify tasks",
	"taskledger events list":        "events list",
	"taskledger events stats":       "events stats",
	"taskledger events tail":        "events tail",
	"taskledger replay what-if":     "replay what-if --policy testdata/policy.json",
	"taskledger state as-of":        "state as-of 1",
	"taskledger seal":               "seal",
	"taskledger seal verify":        "seal verify",
	"taskledger seal proof":         "seal proof coupon.send order-17",
	"taskledger stream show":        "stream show",
	"taskledger stream rebuild":     "stream rebuild",
	"taskledger schedule apply":     "schedule apply -f testdata/schedules.json",
	"taskledger schedule list":      "schedule list",
	"taskledger schedule pause":     "schedule pause nightly-report",
	"taskledger schedule resume":    "schedule resume nightly-report",
	"taskledger schedule run":       "schedule run nightly-report",
	"taskledger schedule show":      "schedule show nightly-report",
	"taskledger schedule delete":    "schedule delete old-OUTPUT",
	"taskledger serve":              "serve",
	"taskledger status":             "status",
	"taskledger subscriber list":    "subscriber list",
	"taskledger subscriber seek":    "subscriber seek mails --beginning",
	"taskledger subscriber show":    "subscriber show mails",
	"taskledger task bury":          "task bury --kind nothing",
	"taskledger task cancel":        "task cancel --kind nothing",
	"taskledger task clone":         "task clone coupon.send order-17 --as order-17-OUTPUT",
	"taskledger task dead":          "task dead",
	"taskledger task release":       "task release --kind nothing",
	"taskledger task reschedule":    "task reschedule --kind nothing --in 1h",
	"taskledger task history":       "task history coupon.send order-17",
	"taskledger task list":          "task list",
	"taskledger task show":          "task show coupon.send order-17",
	"taskledger task tree":          "task tree coupon.send order-17",
	"taskledger version":            "version",
	"taskledger worker list":        "worker list",
}

// exempt are commands whose output is not data, each with the reason.
var exempt = map[string]string{
	"taskledger completion": "prints shell scripts",
	"taskledger help":       "prints help",
	"taskledger demo":       "has a test of its own",
	"taskledger demo-child": "is a part of demo",

	"taskledger task wait": "needs a task that has finished: the script wait has some",

	"taskledger nats-url": "needs the server of serve: the scripts serve and serve-embedded have it",

	"taskledger projection retry": "needs a parked event: the script projection has one",
	"taskledger projection skip":  "needs a failing event: the script projection has one",

	"taskledger subscriber delete": "needs a subscriber: the script subscriber has one",
	"taskledger subscriber pause":  "needs a subscriber: the script subscriber has one",
	"taskledger subscriber resume": "needs a subscriber: the script subscriber has one",
	"taskledger subscriber give":   "needs a subscriber: the script subscriber has one",
	"taskledger subscriber serve":  "needs NATS: the script subscriber-serve has one",
	"taskledger webhook serve":     "needs NATS: the script webhook has one",

	"taskledger token create": "prints a secret once: the scripts of the API have it",
	"taskledger token list":   "the scripts of the API have it",
	"taskledger token revoke": "the scripts of the API have it",

	"taskledger doctor": "fails on the servers of tests: the script doctor has it",

	"taskledger parked show":     "needs a parked event: the script parked has one",
	"taskledger illegal dismiss": "needs an illegal event: the script parked has one",

	"taskledger seal check": "needs files: the script seal has some",

	"taskledger events replay":    "needs a stream: the script replay has one",
	"taskledger import watermill": "needs an outbox: the script import has one",
}

// Every command supports -o json. The test walks the tree and fails for a new command without an example
// here.
func TestEveryCommandSpeaksJSON(t *testing.T) {
	t.Parallel()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	environment := map[string]string{envDatabaseURL: ledgertest.URL(t, ledgertest.Owner), envNATSURL: server.URL()}
	var commands []string
	root := newApp().newRootCommand()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	walk(root, func(cmd *cobra.Command) {
		if cmd.Runnable() && !cmd.HasSubCommands() {
			commands = append(commands, cmd.CommandPath())
		}
	})
	for _, path := range commands {
		line, found := examples[path]
		if !found {
			t.Errorf("%s has neither an example nor a reason to be exempt", path)
			continue
		}
		for _, output := range []string{"json", "jsonl"} {
			stdout, stderr, exit := run(t, environment,
				append(strings.Fields(strings.ReplaceAll(line, "OUTPUT", output)), "-o", output)...)
			if exit != exitOK {
				t.Errorf("%s -o %s: exit %d: %s", line, output, exit, stderr)
				continue
			}
			values := []string{stdout}
			if output == "jsonl" {
				values = strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
			}
			for _, v := range values {
				if !json.Valid([]byte(v)) && !(output == "jsonl" && stdout == "") { // an empty list has no lines
					t.Errorf("%s -o %s: not JSON: %q", line, output, v)
				}
			}
		}
	}
}

func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	if exempt[cmd.CommandPath()] != "" {
		return
	}
	visit(cmd)
	for _, sub := range cmd.Commands() {
		walk(sub, visit)
	}
}

// run executes a command line in this process. A command that continues after its output, as serve does, is
// stopped then.
func run(t *testing.T, environment map[string]string, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return runUntil(ctx, t, environment, cancel, args...)
}

// runUntil is run for a command that is stopped as ctx or after its output as then decides.
func runUntil(ctx context.Context, t *testing.T, environment map[string]string, then func(), args ...string,
) (stdout, stderr string, exit int) {
	t.Helper()
	var out, errs bytes.Buffer
	a := newApp()
	address := addressFor(environment[envDatabaseURL], logins(t, environment[envDatabaseURL]), args)
	a.getenv = func(name string) string {
		if name == envDatabaseURL {
			return address
		}
		return environment[name]
	}
	exit = a.Run(ctx, args, strings.NewReader(""), &firstWrite{&out, then}, &errs)
	return out.String(), errs.String(), exit
}

// firstWrite calls then after the first write.
type firstWrite struct {
	io.Writer
	then func()
}

func (w *firstWrite) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.then()
	return n, err
}
