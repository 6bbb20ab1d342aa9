package pgserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/internal/reserve"
)

// TestMain is also the main function of the parent processes that the tests end.
func TestMain(m *testing.M) {
	if os.Getenv("PGSERVER_TEST_PARENT") != "" {
		if err := parent(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// parent starts a server, prints its directory and address, and returns when its input ends, without
// stopping the server.
func parent() error {
	s, err := pgserver.Start(context.Background(), pgserver.Config{Dir: os.Getenv("PGSERVER_TEST_DIR"), NoSync: true})
	if err != nil {
		return err
	}
	if os.Getenv("PGSERVER_TEST_WATCHDOG") == "dead" {
		if err := s.KillWatchdog(); err != nil {
			return err
		}
	}
	fmt.Println(s.Dir())
	fmt.Println(s.URL("postgres"))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// child is a running parent process.
type child struct {
	*osexec.Cmd
	stdin    io.Closer
	dir, url string
}

func startParent(t *testing.T, dir string) child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(self)
	cmd.Env = append(os.Environ(), "PGSERVER_TEST_PARENT=1", "PGSERVER_TEST_DIR="+dir)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(stdout)
	line := func() string {
		text, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("no line from the parent: %v", err)
		}
		return strings.TrimSpace(text)
	}
	return child{cmd, stdin, line(), line()}
}

// await polls until the condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for ctx := within(t); !holds(); {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("timed out waiting for: %s", what)
		}
	}
}

func TestTemporaryServerEndsWithItsParent(t *testing.T) {
	for name, end := range map[string]func(child){
		"killed": func(c child) { c.Process.Kill() },
		"exited": func(c child) { c.stdin.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			parent := startParent(t, "")
			conn, err := pgx.Connect(within(t), parent.url)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			end(parent)
			_ = parent.Wait()
			await(t, "the session ends", func() bool { return conn.Ping(within(t)) != nil })
			await(t, "the directory is removed", func() bool {
				_, err := os.Stat(parent.dir)
				return errors.Is(err, os.ErrNotExist)
			})
		})
	}
}

func TestServerOfAKilledParentIsSucceeded(t *testing.T) {
	dir := filepath.Join(publicDir(t), "postgres")
	parent := startParent(t, dir)
	conn, err := pgx.Connect(within(t), parent.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(within(t), makeNotes+"; insert into note (word) values ('committed')"); err != nil {
		t.Fatal(err)
	}
	parent.Process.Kill()
	_ = parent.Wait()
	// This start does not wait: the orphan may still be writing its data out.
	if got := query(t, start(t, pgserver.Config{Dir: dir}), readNotes); got != "committed" {
		t.Errorf("notes are %q", got)
	}
}

func TestParentDeathSignalAlone(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a parent-death signal")
	}
	t.Setenv("PGSERVER_TEST_WATCHDOG", "dead")
	dir := filepath.Join(publicDir(t), "postgres")
	parent := startParent(t, dir)
	parent.Process.Kill()
	_ = parent.Wait()
	await(t, "the last process of the server ends", func() bool {
		lock, err := reserve.File(filepath.Join(dir, "alive"))
		return err == nil && lock.Release() == nil
	})
}

func TestWatchdogAlone(t *testing.T) {
	dir := t.TempDir()
	err := pgserver.Orphan(dir, osexec.Command("sleep", "60"))
	var ended *osexec.ExitError
	if !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("the orphan ended with %v, want SIGINT", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v, want ErrNotExist", dir, err)
	}
}
