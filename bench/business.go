package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// args are the input of every task, in every system.
var args = json.RawMessage(`{"customer":"customer-4711","cents":500,"reason":"returning"}`)

// taskID names the i-th task.
func taskID(i int) string { return fmt.Sprintf("task-%08d", i) }

// business makes the table that stands for a user's own: one row a transaction goes into it.
func business(ctx context.Context, t *trial) error {
	_, err := t.db.Exec(ctx, statement("effect_table"))
	return err
}

// settle brings server and tables to rest before the clock starts.
func settle(ctx context.Context, t *trial) error {
	if err := t.server.calm(ctx); err != nil {
		return err
	}
	return analyze(ctx, t)
}

// analyze gives the planner statistics, for a backlog that autovacuum has not seen yet.
func analyze(ctx context.Context, t *trial) error {
	_, err := t.db.Exec(ctx, "analyze")
	return err
}

// backlog fills a fresh database; the meter was read before. There is no checkpoint between
// filling and working, since that would have every page written to the WAL that a system updates
// in place.
func backlog(ctx context.Context, t *trial, n int, fill func(context.Context, *trial, int) error) (*meter, error) {
	if err := t.server.calm(ctx); err != nil {
		return nil, err
	}
	var m meter
	if err := m.read(ctx, t); err != nil {
		return nil, err
	}
	if err := fill(ctx, t, n); err != nil {
		return nil, err
	}
	return &m, analyze(ctx, t)
}

// background runs f until the function it returns is called, which waits for its end and returns
// its error.
func background(ctx context.Context, f func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	return func() error { cancel(); return <-done }
}

// await polls until something is so.
func await(ctx context.Context, done func() (bool, error)) error {
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// awaitClosed waits for a channel to be closed.
func awaitClosed(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c:
		return nil
	}
}

// concurrently runs f n times at once and returns the first error.
func concurrently(n int, f func(i int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	var first error
	for range n {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// batches cuts the numbers from 0 to n into pieces.
func batches(n, size int, f func(from, to int) error) error {
	for from := 0; from < n; from += size {
		if err := f(from, min(n, from+size)); err != nil {
			return err
		}
	}
	return nil
}
