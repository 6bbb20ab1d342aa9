package fault_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/taskledger/taskledger/internal/fault"
)

// TestMain is also the process that the tests below let crash.
func TestMain(m *testing.M) {
	if os.Getenv("FAULT_TEST_VICTIM") != "" {
		for i := 1; i <= 5; i++ {
			fmt.Printf("before %d\n", i)
			fault.Point("other")
			fault.Point("here")
			fmt.Printf("after %d\n", i)
		}
		return
	}
	os.Exit(m.Run())
}

// victim runs the loop of TestMain with list armed and returns what it printed
// and how it ended.
func victim(t *testing.T, list string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "FAULT_TEST_VICTIM=1", fault.Variable+"="+list)
	out, err := cmd.Output()
	return string(out), err
}

func TestVariableKillsTheProcessAtThePassage(t *testing.T) {
	for _, test := range []struct{ list, last string }{
		{"here", "before 1"},
		{"here:1", "before 1"},
		{"here:3", "before 3"},
		{"elsewhere, here:2", "before 2"},
		{"here:5,other:4", "before 4"},
	} {
		t.Run(test.list, func(t *testing.T) {
			out, err := victim(t, test.list)
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				t.Fatalf("ended with %v, want a signal; it printed:\n%s", err, out)
			}
			if status := exit.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGKILL {
				t.Errorf("ended with %v, want SIGKILL", err)
			}
			lines := strings.Split(strings.TrimSpace(out), "\n")
			if last := lines[len(lines)-1]; last != test.last {
				t.Errorf("printed %q last, want %q", last, test.last)
			}
		})
	}
}

func TestVariableLeavesOtherProcessesAlone(t *testing.T) {
	for _, list := range []string{"", "elsewhere", "here:6"} {
		out, err := victim(t, list)
		if err != nil || !strings.HasSuffix(out, "after 5\n") {
			t.Errorf("%s=%q: ended with %v after printing:\n%s", fault.Variable, list, err, out)
		}
	}
}

func TestVariableThatCannotBeReadIsRefused(t *testing.T) {
	for _, list := range []string{"here:", "here:x", "here:0", "here:-1", ":2", "here,here:2"} {
		out, err := victim(t, list)
		if err == nil || out != "" {
			t.Errorf("%s=%q: the process ran and printed:\n%s", fault.Variable, list, out)
		}
	}
}

func TestArmCountsEveryPassageOnce(t *testing.T) {
	var ended atomic.Int32
	if err := fault.Arm("fault_test.crowd:100", func() { ended.Add(1) }); err != nil {
		t.Fatal(err)
	}
	crowd := func() {
		var group sync.WaitGroup
		for range 11 {
			group.Go(func() {
				for range 9 {
					fault.Point("fault_test.crowd")
				}
			})
		}
		group.Wait()
	}
	if crowd(); ended.Load() != 0 {
		t.Fatal("ended before the hundredth passage")
	}
	if crowd(); ended.Load() != 1 {
		t.Fatalf("ended %d times in 198 passages, want once", ended.Load())
	}
}

func TestSetAndRemove(t *testing.T) {
	var calls []string
	remove1 := fault.Set("fault_test.set", func() { calls = append(calls, "first") })
	remove2 := fault.Set("fault_test.set", func() { calls = append(calls, "second") })
	fault.Point("fault_test.set")
	fault.Point("fault_test.unset")
	remove1()
	remove1()
	fault.Point("fault_test.set")
	remove2()
	fault.Point("fault_test.set")
	if got, want := strings.Join(calls, " "), "first second second"; got != want {
		t.Errorf("called %q, want %q", got, want)
	}
}

func TestBlockedPointLetsOthersPass(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	defer fault.Set("fault_test.block", func() {
		if once.CompareAndSwap(false, true) {
			close(entered)
			<-leave
		}
	})()
	var group sync.WaitGroup
	group.Go(func() { fault.Point("fault_test.block") })
	<-entered
	fault.Point("fault_test.block")
	fault.Set("fault_test.block", func() {})()
	close(leave)
	group.Wait()
}

func TestSetIsSafeForConcurrentUse(t *testing.T) {
	var group sync.WaitGroup
	for i := range 8 {
		name := fmt.Sprintf("fault_test.concurrent.%d", i)
		group.Go(func() {
			for range 200 {
				passed := 0
				remove := fault.Set(name, func() { passed++ })
				fault.Point(name)
				remove()
				fault.Point(name)
				if passed != 1 {
					t.Errorf("%s: passed %d times while set, want 1", name, passed)
				}
			}
		})
	}
	group.Wait()
}

func BenchmarkPointNotArmed(b *testing.B) {
	for b.Loop() {
		fault.Point("fault_test.benchmark")
	}
}
