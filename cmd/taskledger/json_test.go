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

// examples are command lines that succeed, one for every command and object. They run in the order of the tree's walk,
// on one database, each once for every OUTPUT.
var examples = map[string]string{
	"taskledger":                  "--version",
	"taskledger apply schedules":  "apply schedules -f testdata/schedules.json",
	"taskledger archive":          "archive --older-than 3650d --to none",
	"taskledger bury":             "bury --kind nothing",
	"taskledger cancel":           "cancel --kind nothing",
	"taskledger clone":            "clone coupon.send order-17 --as order-17-OUTPUT",
	"taskledger delete limit":     "delete limit nothing",
	"taskledger delete schedule":  "delete schedule old-OUTPUT",
	"taskledger discard parked":   "discard parked --all",
	"taskledger enqueue":          "enqueue coupon.send order-17",
	"taskledger events":           "events",
	"taskledger history":          "history coupon.send order-17",
	"taskledger limit":            "limit nothing 10",
	"taskledger migrate roles":    "migrate roles --print --prefix shop",
	"taskledger migrate up":       "migrate up",
	"taskledger nats-config":      "nats-config --subscriber mails",
	"taskledger open":             "open --url http://127.0.0.1:1/",
	"taskledger pause kind":       "pause kind nothing-OUTPUT",
	"taskledger pause schedule":   "pause schedule nightly-report",
	"taskledger prove":            "prove coupon.send order-17",
	"taskledger rebase":           "rebase",
	"taskledger rebuild tables":   "rebuild tables",
	"taskledger rebuild stream":   "rebuild stream",
	"taskledger release":          "release --kind nothing",
	"taskledger reschedule":       "reschedule --kind nothing --in 1h",
	"taskledger resume kind":      "resume kind nothing-OUTPUT",
	"taskledger resume schedule":  "resume schedule nightly-report",
	"taskledger retry parked":     "retry parked --all",
	"taskledger run schedule":     "run schedule nightly-report",
	"taskledger seal":             "seal",
	"taskledger seek subscriber":  "seek subscriber mails --beginning",
	"taskledger serve":            "serve",
	"taskledger show alarms":      "show alarms",
	"taskledger show dead":        "show dead",
	"taskledger show illegal":     "show illegal",
	"taskledger show kinds":       "show kinds",
	"taskledger show limits":      "show limits",
	"taskledger show parked":      "show parked",
	"taskledger show schedules":   "show schedule nightly-report",
	"taskledger show stream":      "show stream",
	"taskledger show subscribers": "show subscribers",
	"taskledger show tasks":       "show task coupon.send order-17",
	"taskledger show tokens":      "show tokens",
	"taskledger show workers":     "show workers",
	"taskledger state":            "state 1",
	"taskledger status":           "status",
	"taskledger test alarms":      "test alarms --alarms testdata/alarms.json",
	"taskledger tree":             "tree coupon.send order-17",
	"taskledger url database":     "url database",
	"taskledger verify tables":    "verify tables",
	"taskledger verify seal":      "verify seal",
	"taskledger what-if":          "what-if --policy testdata/policy.json",
}

// exempt are commands whose output is not data, each with the reason.
var exempt = map[string]string{
	"taskledger completion": "prints shell scripts",
	"taskledger help":       "prints help",
	"taskledger demo":       "has a test of its own",
	"taskledger demo-child": "is a part of demo",

	"taskledger wait": "needs a task that has finished: the script wait has some",

	"taskledger url nats": "needs the server of serve: the scripts serve and serve-embedded have it",

	"taskledger erase": "needs the projector: the script erase has it",

	"taskledger delete subscriber": "needs a subscriber: the script subscriber has one",
	"taskledger pause subscriber":  "needs a subscriber: the script subscriber has one",
	"taskledger resume subscriber": "needs a subscriber: the script subscriber has one",
	"taskledger serve subscriber":  "needs NATS: the script subscriber-serve has one",
	"taskledger serve webhooks":    "needs NATS: the script webhook has one",

	"taskledger create token": "prints a secret once: the scripts of the API have it",
	"taskledger delete token": "the scripts of the API have it",

	"taskledger top": "writes until it is interrupted: the script top has it",

	"taskledger doctor": "fails on the servers of tests: the script doctor has it",

	"taskledger discard illegal": "needs an illegal event: the script parked has one",

	"taskledger replay":           "needs a stream: the script replay has one",
	"taskledger import watermill": "needs an outbox: the script import has one",

	"taskledger export":         "needs a new directory: the script archive has one",
	"taskledger import archive": "needs an empty ledger: the script archive has one",
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
		commands = append(commands, namesOf(cmd)...)
	})
	if _, stderr, exit := run(t, environment, "enqueue", "coupon.send", "order-17"); exit != exitOK {
		t.Fatal(stderr)
	}
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

// namesOf returns a command's name if it does something by itself, with each of its objects if it has some. It leaves
// out the exempt ones.
func namesOf(cmd *cobra.Command) (names []string) {
	if isGroup := cmd.HasSubCommands() && cmd.Use != "serve" && cmd.HasParent(); isGroup || !cmd.Runnable() {
		return nil
	}
	objects := objectsOf(cmd)
	if len(objects) == 0 {
		objects = []string{""}
	}
	for _, object := range objects {
		if name := strings.TrimSpace(cmd.CommandPath() + " " + object); exempt[name] == "" {
			names = append(names, name)
		}
	}
	return names
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
