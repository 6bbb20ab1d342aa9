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

// TestMain is also the main function of the processes that the tests kill.
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

// victim runs the loop of TestMain with list armed. It returns the output and the error of the process.
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

func TestVariableKillsTheProcessAtTheCall(t *testing.T) {
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

func TestInvalidVariable(t *testing.T) {
	for _, list := range []string{"here:", "here:x", "here:0", "here:-1", ":2", "here,here:2"} {
		out, err := victim(t, list)
		if err == nil || out != "" {
			t.Errorf("%s=%q: the process ran and printed:\n%s", fault.Variable, list, out)
		}
	}
}

func TestArmCountsEveryCallOnce(t *testing.T) {
	var ends atomic.Int32
	if err := fault.Arm("fault_test.crowd:100", func() { ends.Add(1) }); err != nil {
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
	if crowd(); ends.Load() != 0 {
		t.Fatal("ended before the hundredth call")
	}
	if crowd(); ends.Load() != 1 {
		t.Fatalf("ended %d times in 198 calls, want once", ends.Load())
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

func TestBlockedPointDoesNotBlockOthers(t *testing.T) {
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
				calls := 0
				remove := fault.Set(name, func() { calls++ })
				fault.Point(name)
				remove()
				fault.Point(name)
				if calls != 1 {
					t.Errorf("%s: %d calls while set, want 1", name, calls)
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
