package reserve_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/reserve"
)

// TestMain is also the main function of a child that keeps an inherited lock until its input ends.
func TestMain(m *testing.M) {
	if os.Getenv("RESERVE_TEST_CHILD") != "" {
		fmt.Println("running")
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		return
	}
	os.Exit(m.Run())
}

func TestFileIsHeldOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	lock, err := reserve.File(name)
	if err != nil {
		t.Fatal(err)
	}
	_, err = reserve.File(name)
	if !errors.Is(err, reserve.ErrHeld) {
		t.Fatalf("second lock: %v, want ErrHeld", err)
	}
	if pid := fmt.Sprint(os.Getpid()); !strings.Contains(err.Error(), pid) || !strings.Contains(err.Error(), name) {
		t.Errorf("error %q, want the process id %s and the file in it", err, pid)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	again, err := reserve.File(name)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	again.Release()
}

func TestChildKeepsTheLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	lock, err := reserve.File(name)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), "RESERVE_TEST_CHILD=1")
	child.ExtraFiles = []*os.File{lock.File}
	stdin, _ := child.StdinPipe()
	stdout, _ := child.StdoutPipe()
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	lock.Release()
	if _, err := reserve.File(name); !errors.Is(err, reserve.ErrHeld) {
		t.Errorf("while the child runs: %v, want ErrHeld", err)
	}
	stdin.Close()
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	again, err := reserve.File(name)
	if err != nil {
		t.Fatalf("after the child: %v", err)
	}
	again.Release()
}

// A child that is being started has every file of its parent open until it runs its program. A lock that is released
// meanwhile can be taken again.
func TestReleaseWhileAChildStarts(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	lock, err := reserve.File(name)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "0.3")
	child.ExtraFiles = []*os.File{lock.File}
	if err := child.Start(); err != nil {
		t.Skip(err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	again, err := reserve.File(name)
	if err != nil {
		t.Errorf("while the child runs for a moment: %v", err)
	} else {
		again.Release()
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}

// A process was killed, and its children still have the lock: who follows it waits for them, also while the parent of
// the process has not waited for it.
func TestLockOfAProcessThatIsGone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("children inherit no locks on Windows")
	}
	for _, isZombie := range []bool{false, true} {
		if isZombie && runtime.GOOS != "linux" {
			continue
		}
		name := filepath.Join(t.TempDir(), "lock")
		lock, err := reserve.File(name)
		if err != nil {
			t.Fatal(err)
		}
		gone := exec.Command("true")
		if err := gone.Start(); err != nil {
			t.Fatal(err)
		}
		if isZombie {
			defer func() { _ = gone.Wait() }()
			for !reserve.IsZombie(gone.Process.Pid) {
				time.Sleep(time.Millisecond)
			}
		} else if err := gone.Wait(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, fmt.Appendln(nil, gone.Process.Pid), 0o600); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(300*time.Millisecond, func() { lock.Release() })
		after, err := reserve.File(name)
		if err != nil {
			t.Fatalf("zombie %t: %v", isZombie, err)
		}
		after.Release()
	}
	if reserve.IsZombie(os.Getpid()) {
		t.Error("this process has ended")
	}
}

func TestPortCanBeListenedOn(t *testing.T) {
	port, err := reserve.Port()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if reserve.Free(port) == nil {
		t.Errorf("port %d is free while a listener has it", port)
	}
}

func TestLinkIsNotFollowed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows cannot refuse links")
	}
	dir := t.TempDir()
	target, name := filepath.Join(dir, "target"), filepath.Join(dir, "lock")
	if err := errors.Join(os.WriteFile(target, []byte("kept"), 0o600), os.Symlink(target, name)); err != nil {
		t.Fatal(err)
	}
	if lock, err := reserve.File(name); err == nil {
		lock.Release()
		t.Error("a link was locked")
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != "kept" {
		t.Errorf("the target of the link is %q, %v", text, err)
	}
}
