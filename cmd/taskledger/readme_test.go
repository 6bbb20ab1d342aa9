package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// TestReadmeCommands runs each line of the blocks under "Run it", as printed and in their order, on real servers.
// The last block runs on servers of the test; only its line that exports example addresses is left out.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	blocks := readmeBlocks(t)
	if len(blocks) != 3 {
		t.Fatalf("README.md has %d blocks of commands, want 3", len(blocks))
	}
	bin := t.TempDir()
	env := append(os.Environ(), "GOBIN="+bin, "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"),
		"TASKLEDGER_DATA="+dataDir(t), envDatabaseURL+"=", envNATSURL+"=")
	own := shell{t: t, env: env}
	own.run(blocks[0])
	own.run(blocks[1])
	own.runTutorial()
	own.stop()

	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	given := shell{t: t, env: append(env, envDatabaseURL+"="+emptyDatabase(t), envNATSURL+"="+server.URL())}
	given.run(blocks[2])
	given.stop()
}

// readmeBlocks returns the lines of each block of commands under "Run it".
func readmeBlocks(t *testing.T) (blocks [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Run it\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for {
		_, rest, found := strings.Cut(section, "```sh\n")
		if !found {
			return blocks
		}
		block, after, _ := strings.Cut(rest, "\n```")
		blocks = append(blocks, strings.Split(block, "\n"))
		section = after
	}
}

// dataDir returns a directory that a server of root's can enter: it runs as another user.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "taskledger-readme-")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "data")
}

// emptyDatabase returns the address of a database without a schema.
func emptyDatabase(t *testing.T) string {
	t.Helper()
	url := ledgertest.URL(t, ledgertest.Owner)
	conn, err := pgx.Connect(context.Background(), url)
	if err == nil {
		_, err = conn.Exec(context.Background(), "drop schema taskledger, taskledger_internal cascade")
		_ = conn.Close(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// shell runs lines of a document, each in a shell in the root of the repository.
type shell struct {
	t     *testing.T
	env   []string
	serve *exec.Cmd // runs in the background; nil: no line has started it
}

// run runs lines. A line that starts serve continues in the background.
func (s *shell) run(lines []string) {
	s.t.Helper()
	for _, line := range lines {
		switch {
		case strings.HasPrefix(line, "export "):
		case line == "taskledger serve":
			s.serve = s.command("exec " + line)
			if err := s.serve.Start(); err != nil {
				s.t.Fatal(err)
			}
			s.t.Cleanup(func() { _ = s.serve.Process.Kill() }) // if a line has failed
			s.awaitServe()
		default:
			if out, err := s.command(line).CombinedOutput(); err != nil {
				s.t.Fatalf("%s: %v\n%s", line, err, out)
			}
		}
	}
}

// runTutorial runs all blocks of docs/tutorial.md in one shell, while serve runs.
func (s *shell) runTutorial() {
	s.t.Helper()
	doc, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		s.t.Fatal(err)
	}
	script := "set -e\n"
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(doc), -1) {
		script += m[1]
	}
	partner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	_ = partner.Close() // its port is free now
	cmd := s.command(strings.ReplaceAll(script, "127.0.0.1:9090", partner.Addr().String()))
	// The programs of the last blocks run on: they keep neither the test's pipes open nor run longer than the test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := os.Create(filepath.Join(s.t.TempDir(), "out"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	text, _ := os.ReadFile(out.Name())
	if err != nil {
		s.t.Fatalf("docs/tutorial.md: %v\n%s", err, text)
	}
	for _, want := range []string{
		"It does not begin because no live worker handles the kind", "order A-1: the task is new: false",
		"exit code 9", "the partner is back", "weekly-coupons  campaign.start",
	} {
		if !strings.Contains(string(text), want) || !strings.Contains(string(doc), want) {
			s.t.Errorf("docs/tutorial.md or its output does not contain %q:\n%s", want, text)
		}
	}
}

// awaitServe waits until the relay works.
func (s *shell) awaitServe() {
	s.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		out, err := s.command(`taskledger status -o json`).CombinedOutput()
		if err == nil && strings.Contains(string(out), `"relay"`) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("serve does not work after %s: %v\n%s", patience, err, out)
		}
	}
}

// stop ends serve, which must end without an error.
func (s *shell) stop() {
	s.t.Helper()
	if s.serve == nil {
		s.t.Fatal("no line starts serve")
	}
	if err := s.serve.Process.Signal(syscall.SIGINT); err != nil {
		s.t.Fatal(err)
	}
	if err := s.serve.Wait(); err != nil {
		s.t.Errorf("serve: %v", err)
	}
}

// command returns a line that a shell runs.
func (s *shell) command(line string) *exec.Cmd {
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = "../.."
	cmd.Env = s.env
	return cmd
}
