package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// costMeasure measures the costs of a task other than time, from its enqueue to its success.
func costMeasure() measure {
	drain := func(run func(ctx context.Context, t *trial, tasks int) error) func(context.Context, *trial) error {
		return func(ctx context.Context, t *trial) error {
			t.costs = true
			return run(ctx, t, t.size(1_000_000, 30_000))
		}
	}
	return measure{
		name: "cost", once: true, notQuick: true,
		title: "cost of each of 1,000,000 tasks, enqueued in bulk, with a handler that does nothing",
		contenders: []contender{
			{system: ours, setting: "slots", tune: []string{"1000"},
				run: drain(func(ctx context.Context, t *trial, tasks int) error {
					return drainOurs(ctx, t, tasks, noopAtLeastOnce, fromCommit, nil)
				})},
			{system: floorPipeline, run: drain(drainFloor)},
			{system: peerRiver, setting: "MaxWorkers (" + benchPace + ")", tune: []string{"2000"},
				run: drain(drainRiver)},
			{system: peerSkipLocked, tune: []string{"8 workers, batches of 100"}, run: drain(drainSkipLocked)},
		},
	}
}

// meter contains the counters of the servers and of this process at one time.
type meter struct {
	wal, xids, dead, size       float64
	postgres, broker, ourselves float64 // CPU seconds
	trips, messages, bytes      float64 // round trips to PostgreSQL; through NATS, in both directions
	allocations, allocated      float64 // of this process, and their bytes
	others                      float64 // CPU seconds of processes that are not of this run
}

// read reads all counters. Those that this system does not have are 0.
func (m *meter) read(ctx context.Context, t *trial) error {
	var postmaster int
	err := t.db.QueryRow(ctx, statement("meter")).Scan(&m.wal, &m.xids, &m.dead, &m.size, &postmaster)
	if err != nil || !t.costs {
		return err
	}
	if t.server.own != nil {
		m.postgres = familySeconds(postmaster)
	}
	if t.broker != nil {
		m.broker = familySeconds(t.broker.command.Process.Pid)
	}
	m.ourselves = processSeconds(os.Getpid())
	m.trips = float64(t.trips.Load())
	if t.nc != nil {
		s := t.nc.Stats()
		m.messages, m.bytes = float64(s.InMsgs+s.OutMsgs), float64(s.InBytes+s.OutBytes)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	m.allocations, m.allocated = float64(memory.Mallocs), float64(memory.TotalAlloc)
	m.others = machineSeconds() - m.postgres - familySeconds(os.Getpid())
	return nil
}

// add adds the costs of each of n tasks since m was read.
func (m *meter) add(ctx context.Context, t *trial, n int) error {
	var now meter
	if err := now.read(ctx, t); err != nil {
		return err
	}
	per := func(metric string, from, to, factor float64, unit string) {
		t.add(metric, (to-from)*factor/float64(n), unit)
	}
	per(walPerTask, m.wal, now.wal, 1, "bytes")
	if !t.costs {
		return nil
	}
	if err := now.flush(ctx, t); err != nil {
		return err
	}
	per("write transactions per task", m.xids, now.xids, 1, "transactions")
	per(deadPerTask, m.dead, now.dead, 1, "tuples")
	per("database per task", m.size, now.size, 1, "bytes")
	if now.postgres > 0 {
		per("CPU of PostgreSQL per task", m.postgres, now.postgres, 1e6, "µs")
	}
	if now.broker > 0 {
		per("CPU of NATS per task", m.broker, now.broker, 1e6, "µs")
		bytes, err := sizeOf(t.brokerDir)
		if err != nil {
			return err
		}
		per("stream per task", 0, bytes, 1, "bytes")
	}
	per("round trips per task", m.trips, now.trips, 1, "round trips")
	if now.messages > 0 {
		per("messages per task", m.messages, now.messages, 1, "messages")
		per("bytes of messages per task", m.bytes, now.bytes, 1, "bytes")
	}
	per("allocations per task", m.allocations, now.allocations, 1, "allocations")
	per("allocated per task", m.allocated, now.allocated, 1, "bytes")
	if now.ourselves > 0 {
		per("CPU of the client per task", m.ourselves, now.ourselves, 1e6, "µs")
	}
	return nil
}

// flush reads the dead tuples again after closing the connections, which report theirs when they end.
func (m *meter) flush(ctx context.Context, t *trial) error {
	t.db.Reset()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Second):
	}
	var late meter
	if err := late.read(ctx, t); err != nil {
		return err
	}
	m.dead = late.dead
	return nil
}

// awaitDisconnected closes the connections of a trial, and waits until no client is connected to its database, except
// one that holds a transaction. Each reports its dead tuples when it ends.
func awaitDisconnected(ctx context.Context, t *trial) error {
	t.db.Reset()
	return await(ctx, func() (isAlone bool, err error) {
		err = t.db.QueryRow(ctx, statement("alone")).Scan(&isAlone)
		return isAlone, err
	})
}

// sizeOf returns the size of all files below a directory.
func sizeOf(dir string) (sum float64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // the broker has removed it
			return nil
		}
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			sum += float64(info.Size())
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return sum, err
}

// ticksPerSecond is the unit of CPU time in /proc.
const ticksPerSecond = 100

// times are the CPU seconds of a process and of its ended children.
type times struct {
	parent         int
	self, children float64
}

// processTimes reads /proc. It returns false if /proc or the process does not exist.
func processTimes(pid int) (times, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := bytes.Cut(text, []byte(") ")) // the name before it may have any character
	f := strings.Fields(string(rest))
	if err != nil || !ok || len(f) < 15 {
		return times{}, false
	}
	number := func(i int) float64 { n, _ := strconv.ParseFloat(f[i], 64); return n }
	self, children := (number(11)+number(12))/ticksPerSecond, (number(13)+number(14))/ticksPerSecond
	return times{parent: int(number(1)), self: self, children: children}, true
}

func processSeconds(pid int) float64 {
	t, _ := processTimes(pid)
	return t.self
}

// machineSeconds returns the CPU seconds of all processes, and the seconds that the host took from a virtual machine.
func machineSeconds() (sum float64) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	for i, f := range strings.Fields(line) {
		if i == 0 || i == 4 || i == 5 || i > 8 { // name, idle, waiting for disks; guests are in the first ones
			continue
		}
		n, _ := strconv.ParseFloat(f, 64)
		sum += n / ticksPerSecond
	}
	return sum
}

// familySeconds returns the CPU seconds of a process and its children, including ended ones.
func familySeconds(pid int) float64 {
	t, ok := processTimes(pid)
	if !ok {
		return 0
	}
	sum := t.self + t.children
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if child, err := strconv.Atoi(e.Name()); err == nil {
			if c, ok := processTimes(child); ok && c.parent == pid {
				sum += c.self
			}
		}
	}
	return sum
}
