package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// args are the args of every task, in every system.
var args = json.RawMessage(`{"customer":"customer-4711","cents":500,"reason":"returning"}`)

// taskID returns the biz_id of the i-th task.
func taskID(i int) string { return fmt.Sprintf("task-%08d", i) }

// createEffectTable creates the business table, into which each transaction inserts one row.
func createEffectTable(ctx context.Context, t *trial) error {
	_, err := t.db.Exec(ctx, statement("effect_table"))
	return err
}

// checkpointAndAnalyze does the work that earlier writes have left, before the clock starts.
func checkpointAndAnalyze(ctx context.Context, t *trial) error {
	if err := t.server.checkpoint(ctx); err != nil {
		return err
	}
	return analyze(ctx, t)
}

// analyze gathers statistics of a backlog, which autovacuum would do later.
func analyze(ctx context.Context, t *trial) error {
	_, err := t.db.Exec(ctx, "analyze")
	return err
}

// fillBacklog reads the meter and fills a fresh database. No checkpoint follows the fill: after one, the
// WAL would contain a full image of every page that a system updates in place.
func fillBacklog(ctx context.Context, t *trial, n int, fill func(context.Context, *trial, int) error) (*meter, error) {
	if err := t.server.checkpoint(ctx); err != nil {
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

// background runs f until the returned function is called, which waits for f and returns its error.
func background(ctx context.Context, f func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	return func() error { cancel(); return <-done }
}

// await polls until done returns true or an error.
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

// awaitClosed waits until a channel is closed.
func awaitClosed(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c:
		return nil
	}
}

// concurrently runs n calls of f at once and returns the first error.
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

// batches calls f for the numbers from 0 to n, size at a time.
func batches(n, size int, f func(from, to int) error) error {
	for from := 0; from < n; from += size {
		if err := f(from, min(n, from+size)); err != nil {
			return err
		}
	}
	return nil
}
