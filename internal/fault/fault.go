// Package fault holds named crash points, so that tests and the demo can end a
// process, or stop a goroutine, at an exact place: between a commit and the
// acknowledgement after it, between a publish and the cursor row.
//
// A point does nothing unless it was armed, and costs one atomic load. It is
// armed from outside by the environment variable TASKLEDGER_FAULT, or from
// inside a test by [Set]:
//
//	TASKLEDGER_FAULT=relay.published           SIGKILL at the first passage
//	TASKLEDGER_FAULT=relay.published:3         SIGKILL at the third passage
//	TASKLEDGER_FAULT=relay.published:3,worker.committed
//
// The process ends as by kill -9: no deferred call runs, nothing is flushed.
//
// Production code must never depend on a point: whatever it does has to be
// right whether or not a point is there, and a point returns no value.
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

// Variable is the environment variable that arms points of a whole process. A
// value that cannot be read panics when the process starts, since a test whose
// fault is not there would pass for the wrong reason.
const Variable = "TASKLEDGER_FAULT"

// hook is what [Set] arms: a pointer, so that one of several equal functions
// can be removed.
type hook struct{ call func() }

var (
	// armed is nil as long as no point is armed. The map is never changed once
	// it is here; Set puts a changed copy in its place.
	armed atomic.Pointer[map[string][]*hook]
	// arming serializes the writers of armed.
	arming sync.Mutex
)

func init() {
	if err := arm(os.Getenv(Variable), kill); err != nil {
		panic(err)
	}
}

// Point marks the place name. It calls what is armed there in the caller's
// goroutine, in the order in which it was armed. It is safe for concurrent
// use, and other goroutines pass the same point while a function of [Set]
// blocks one of them.
func Point(name string) {
	hooks := armed.Load()
	if hooks == nil {
		return
	}
	for _, h := range (*hooks)[name] {
		h.call()
	}
}

// Set arms the point name with f and returns a function that disarms it; call
// it more than once if you like. f may block, panic or call
// [runtime.Goexit]. A passage that began before the removal may still call f.
// Set is safe for concurrent use.
func Set(name string, f func()) (remove func()) {
	h := &hook{f}
	change(func(hooks map[string][]*hook) {
		hooks[name] = append(slices.Clone(hooks[name]), h)
	})
	return func() {
		change(func(hooks map[string][]*hook) {
			left := slices.DeleteFunc(slices.Clone(hooks[name]), func(other *hook) bool { return other == h })
			if hooks[name] = left; len(left) == 0 {
				delete(hooks, name)
			}
		})
	}
}

// change puts a changed copy in the place of the armed hooks.
func change(edit func(map[string][]*hook)) {
	arming.Lock()
	defer arming.Unlock()
	hooks := map[string][]*hook{}
	if old := armed.Load(); old != nil {
		hooks = maps.Clone(*old)
	}
	edit(hooks)
	if len(hooks) == 0 {
		armed.Store(nil)
		return
	}
	armed.Store(&hooks)
}

// arm reads a list like "a,b:3" and arms each of its points to call end at
// exactly that passage. It arms all of them or, with an error, none.
func arm(list string, end func()) error {
	passages := map[string]int64{}
	for entry := range strings.SplitSeq(list, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		name, count, counted := strings.Cut(entry, ":")
		n := int64(1)
		if counted {
			var err error
			if n, err = strconv.ParseInt(count, 10, 64); err != nil || n < 1 {
				return fmt.Errorf("fault: %s: %q: want name or name:n with n of 1 or more", Variable, entry)
			}
		}
		if _, twice := passages[name]; twice || name == "" {
			return fmt.Errorf("fault: %s: %q: each point needs a name and may stand there once", Variable, entry)
		}
		passages[name] = n
	}
	for name, n := range passages {
		var passed atomic.Int64
		Set(name, func() {
			if passed.Add(1) == n {
				end()
			}
		})
	}
	return nil
}

// kill ends this process as nothing else would: at once and without a trace.
func kill() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(fmt.Sprintf("fault: killing the own process: %v", err))
	}
	select {} // nothing after the point may run while the signal is on its way
}
