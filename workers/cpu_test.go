//go:build unix

package workers_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// spent returns the CPU time of this process, and of its child processes, the PostgreSQL servers.
func spent(t testing.TB) (own, servers time.Duration) {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	parents, ticks := map[int]int{}, map[int]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		var pid, parent, user, system, deadUser, deadSystem, skip int
		var state string
		if _, err := fmt.Sscan(filepath.Base(filepath.Dir(path)), &pid); err != nil {
			continue
		}
		rest := string(text[strings.LastIndexByte(string(text), ')')+1:])
		if _, err := fmt.Sscan(rest, &state, &parent, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip,
			&user, &system, &deadUser, &deadSystem); err != nil {
			continue
		}
		parents[pid], ticks[pid] = parent, user+system+deadUser+deadSystem
	}
	total := 0
	for pid := range ticks {
		for p := parents[pid]; p > 1; p = parents[p] {
			if p == os.Getpid() {
				total += ticks[pid]
				break
			}
		}
	}
	const tick = 10 * time.Millisecond // USER_HZ
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), time.Duration(total) * tick
}

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
