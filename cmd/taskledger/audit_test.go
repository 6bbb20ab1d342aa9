package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

var documentedTime = regexp.MustCompile(`\b2026-11-1[78]T09:00:00Z\b`)

// TestAuditCommands runs each line of the blocks of docs/audit.md, as printed and in their order, as reader,
// operator or archiver. Its times are replaced by the present. The stream is made by the test.
func TestAuditCommands(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App)
	k := ledger.Key{Kind: "coupon.send", BizID: "A-1"}
	ledgertest.Enqueue(t, pool, k, `{"cents": 500}`)
	ledgertest.Append(t, pool, k, ledger.EventStarted, ledger.EventFailed, ledger.EventReleased)
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	makeReplayStream(t, server.URL())
	text, err := os.ReadFile("../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	bin, dir := t.TempDir(), t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(bin, "taskledger"), ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ran := 0
	for _, block := range strings.Split(string(text), "```sh\n")[1:] {
		block, _, _ = strings.Cut(block, "\n```")
		for line := range strings.Lines(block) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "nats ") {
				continue
			}
			role := "reader"
			switch {
			case strings.Contains(line, " --reason "):
				role = "operator"
			case strings.HasPrefix(line, "taskledger seal >>"):
				role = "archiver"
			}
			now := time.Now().UTC().Format(time.RFC3339Nano)
			cmd := exec.Command("sh", "-c", documentedTime.ReplaceAllString(line, now))
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"),
				envDatabaseURL+"="+ledgertest.URLAs(t, pool.Config().ConnString(), role), envNATSURL+"="+server.URL())
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
			ran++
		}
	}
	if ran < 14 {
		t.Errorf("only %d commands were found", ran)
	}
	again := ledger.Key{Kind: k.Kind, BizID: "A-1-again"}
	clone, err := ledger.Load(t.Context(), ledgertest.As(t, pool, "reader"), again)
	if err != nil || clone.Cause != k {
		t.Errorf("%v, %v", clone, err)
	}
}

// makeReplayStream makes the stream of docs/audit.md.
func makeReplayStream(t *testing.T, url string) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err == nil {
		config := jetstream.StreamConfig{Name: "REPLAY", Subjects: []string{"replay.>"}}
		_, err = js.CreateStream(context.Background(), config)
	}
	if err != nil {
		t.Fatal(err)
	}
}
