// Package fault provides named crash points. With them, tests and the demo end a process or block a goroutine at an
// exact place: between a commit and its acknowledgement, between a publish and the cursor row.
//
// A point does nothing unless it is armed, and costs one atomic load. The environment variable
// TASKLEDGER_FAULT arms points of a process; [Set] arms one within a test:
//
//	TASKLEDGER_FAULT=relay.published           SIGKILL at the first call of the point
//	TASKLEDGER_FAULT=relay.published:3         SIGKILL at the third call
//	TASKLEDGER_FAULT=relay.published:3,worker.committed
//
// The process ends as by kill -9: no deferred call runs, and no buffer is flushed.
//
// Production code must be correct with and without its points. A point returns no value.
package fault

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Variable is the environment variable that arms points of a process. An invalid value panics when the
// process starts: a test without its fault would pass for the wrong reason.
const Variable = "TASKLEDGER_FAULT"

// hook is a function that [Set] armed. It is used by pointer, because functions cannot be compared.
type hook struct{ call func() }

var (
	// points maps each armed point to its hooks, in the order of arming. It is nil if no point is armed. A stored map
	// never changes; writers store a changed copy.
	points atomic.Pointer[map[string][]*hook]
	// writing serializes the writers of points.
	writing sync.Mutex
)

func init() {
	if err := arm(os.Getenv(Variable), kill); err != nil {
		panic(err)
	}
}

// Point is the crash point name. It calls the functions that are armed there, in the order of arming, in
// the caller's goroutine. It is safe for concurrent use: a function that blocks one goroutine does not
// block others.
func Point(name string) {
	hooks := points.Load()
	if hooks == nil {
		return
	}
	for _, h := range (*hooks)[name] {
		h.call()
	}
}

// Set arms the point name with f, which may block, panic or call [runtime.Goexit]. The returned function
// disarms it; later calls of it do nothing. A call of the point that began before may still call f.
// Set is safe for concurrent use.
func Set(name string, f func()) (remove func()) {
	h := &hook{f}
	change(func(hooks map[string][]*hook) {
		hooks[name] = append(slices.Clone(hooks[name]), h)
	})
	return func() {
		change(func(hooks map[string][]*hook) {
			others := slices.DeleteFunc(slices.Clone(hooks[name]), func(other *hook) bool { return other == h })
			if hooks[name] = others; len(others) == 0 {
				delete(hooks, name)
			}
		})
	}
}

// change stores a changed copy of points.
func change(edit func(map[string][]*hook)) {
	writing.Lock()
	defer writing.Unlock()
	hooks := map[string][]*hook{}
	if old := points.Load(); old != nil {
		hooks = maps.Clone(*old)
	}
	edit(hooks)
	if len(hooks) == 0 {
		points.Store(nil)
		return
	}
	points.Store(&hooks)
}

// arm arms the points of a list such as "a,b:3", each to call end at that one call of the point. With an
// error it arms none.
func arm(list string, end func()) error {
	calls := map[string]int64{}
	for entry := range strings.SplitSeq(list, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		name, count, hasCount := strings.Cut(entry, ":")
		n := int64(1)
		if hasCount {
			var err error
			if n, err = strconv.ParseInt(count, 10, 64); err != nil || n < 1 {
				return fmt.Errorf("fault: invalid %s: must be name or name:n with n of 1 or more, got %q", Variable,
					entry)
			}
		}
		if _, repeated := calls[name]; repeated || name == "" {
			return fmt.Errorf("fault: invalid %s: each point needs a name and occurs once, got %q", Variable, entry)
		}
		calls[name] = n
	}
	for name, n := range calls {
		var count atomic.Int64
		Set(name, func() {
			if count.Add(1) == n {
				end()
			}
		})
	}
	return nil
}

// kill ends this process by SIGKILL.
func kill() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(fmt.Sprintf("fault: kill this process: %v", err))
	}
	select {} // no code after the point may run before the signal arrives
}
