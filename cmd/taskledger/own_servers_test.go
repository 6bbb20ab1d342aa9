package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/internal/embedded"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/migrations"
	"github.com/taskledger/taskledger/workers"
)

var ownServers = ledger.MustKind[int]("own.servers")

// A program with the address of the database alone, which serve has started, finds NATS and works on tasks. It goes on
// when serve starts again.
func TestProgramOfOwnServers(t *testing.T) {
	t.Parallel()
	dir := dirForServers(t)
	start := func() (stop func(), address string) {
		cmd := exec.Command("taskledger", "serve", "--data-dir", dir, "--listen", "127.0.0.1:0")
		cmd.Env = append(os.Environ(), envDatabaseURL+"=", envNATSURL+"=", envLogins+"=")
		cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stop = func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		}
		for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			servers, err := embedded.Attach(dir)
			if err == nil {
				return stop, servers.DatabaseURL
			}
			if time.Since(begun) > 4*patience {
				stop()
				t.Fatalf("no server: %v", err)
			}
		}
	}
	stop, address := start()
	defer func() { stop() }()
	awaitMigrated(t, address)
	checkLink(t, dir)
	client, err := taskledger.Open(t.Context(), taskledger.Options{DatabaseURL: address})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	done := make(chan int, 100)
	handle := func(_ context.Context, _ pgx.Tx, _ *workers.Job, n int) error {
		done <- n
		return nil
	}
	pool, err := client.Worker(workers.Handle(ownServers, handle, nil))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- pool.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	for n, bizID := range []ledger.BizID{"first", "again"} {
		if n == 1 {
			stop()
			if stop, address = start(); address != client.DB.Config().ConnString() {
				before := client.DB.Config().ConnConfig
				free, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", before.Port))
				if err == nil {
					_ = free.Close()
					t.Fatalf("PostgreSQL is at %s, although port %d is free", address, before.Port)
				}
				t.Skip("another process has taken the port of PostgreSQL: ", err)
			}
			awaitMigrated(t, address)
		}
		for begun := time.Now(); ; { // the pool may have connections that have ended
			_, err := ownServers.Enqueue(t.Context(), client.DB, bizID, n, nil)
			if err == nil {
				break
			}
			if time.Since(begun) > patience {
				t.Fatal(err)
			}
		}
		for got := -1; got != n; { // an attempt whose commit the stop has prevented is repeated
			select {
			case got = <-done:
			case <-time.After(4 * patience):
				t.Fatalf("task %s is not worked on", bizID)
			}
		}
	}
}

// checkLink checks that open finds the console of the serve in a data directory.
func checkLink(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command("taskledger", "open", "--data-dir", dir, "--output", "json")
	cmd.Env = append(os.Environ(), envDatabaseURL+"=", envNATSURL+"=", envLogins+"=", envConsoleURL+"=")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var link struct {
		URL string `json:"url"`
	}
	if err := json.Unmarshal(out, &link); err != nil {
		t.Fatal(err)
	}
	page, _, _ := strings.Cut(link.URL, "#")
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) { // the services may still be starting
		answer, err := http.Get(page)
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Since(begun) > 4*patience {
			t.Fatalf("the console is not at %s: %v", page, err)
		}
	}
}

// dirForServers returns a data directory that the user of PostgreSQL can enter, unlike one of t.TempDir.
func dirForServers(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "taskledger-own-servers-")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "data")
}

// awaitMigrated waits until a database has the schema of this version, and answers.
func awaitMigrated(t *testing.T, address string) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := migrations.Check(t.Context(), address)
		if err == nil {
			return
		}
		if time.Since(begun) > 4*patience {
			t.Fatal(err)
		}
	}
}
