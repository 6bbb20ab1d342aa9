package systemtest_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/served"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// servedPrograms are the examples of docs/subscribers.md: the file, its interpreter, and how the program is made ready
// to run in a directory. prepare returns the reason for which it cannot be.
var servedPrograms = map[string]struct {
	command string
	prepare func(ctx context.Context, dir string) (reason string, err error)
}{
	"served.cjs": {command: "node", prepare: installNode},
	"served.py": {command: "python3",
		prepare: func(ctx context.Context, _ string) (string, error) {
			cmd := exec.CommandContext(ctx, "python3", "-c", "import nats, nkeys")
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Sprintf("nats-py with nkeys is not installed, and Debian has no package of it: %s", out), nil
			}
			return "", nil
		}},
}

// installNode installs npm's packages of NATS. It returns the reason if npm or its registry is missing.
func installNode(ctx context.Context, dir string) (reason string, err error) {
	if _, err := exec.LookPath("npm"); err != nil {
		return "npm is not installed", nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--prefer-offline",
		"@nats-io/transport-node@3.4.0", "@nats-io/jetstream@3.4.0")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil && (isUnreachable(out) || ctx.Err() != nil):
		return fmt.Sprintf("npm's registry cannot be reached: %v: %s", err, out), nil
	case err != nil:
		return "", fmt.Errorf("npm install: %w: %s", err, out)
	}
	return "", nil
}

// The programs in examples/served, with a NATS client alone and the key of their user in docs/nats.conf, receive the
// past and the present.
func TestServedPrograms(t *testing.T) {
	for file, example := range servedPrograms {
		t.Run(file, func(t *testing.T) {
			dir := t.TempDir()
			if reason, err := example.prepare(t.Context(), dir); err != nil {
				t.Fatal(err)
			} else if reason != "" {
				t.Skip(reason)
			}
			g := newGuarded(t)
			enqueue := func(id string) {
				ledgertest.Enqueue(t, g.db, ledger.Key{Kind: "order.ship", BizID: ledger.BizID(id)}, `{"n":1}`)
			}
			enqueue("past")
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() {
				ended <- served.Run(ctx, served.Config{DB: g.pool("subscriber"), Name: "orders",
					NATS: g.connect("orders-server")})
			}()
			t.Cleanup(func() {
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
			g.awaitStream()
			seed, err := os.ReadFile(natsconfig.SeedFile(g.keys, "orders"))
			if err != nil {
				t.Fatal(err)
			}
			files := map[string][]byte{"orders.nk": seed, file: readExample(t, "served/"+file)}
			for name, text := range files {
				if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), example.command, file)
			cmd.Dir, cmd.Stderr = dir, t.Output()
			cmd.Env = append(os.Environ(), "NATS_SERVER="+strings.TrimPrefix(g.url, "nats://"))
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			lines := make(chan string)
			go func() {
				defer close(lines)
				for scanner := bufio.NewScanner(out); scanner.Scan(); {
					lines <- scanner.Text()
				}
			}()
			for _, id := range []string{"past", "present"} {
				if id == "present" {
					enqueue(id)
				}
				select {
				case line := <-lines:
					if want := "order.ship/" + id + ` taskledger.enqueued {"n":1}`; line != want {
						t.Errorf("the program printed %q, want %q", line, want)
					}
				case <-time.After(patience):
					t.Fatal("the program printed nothing")
				}
			}
		})
	}
}
