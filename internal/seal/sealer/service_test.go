package sealer_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/seal/sealer"
	"github.com/taskledger/taskledger/internal/settings"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// start runs a service until stop is called.
func (f *fixture) start(file sealer.File) (stop func()) {
	f.t.Helper()
	file.Every = settings.Duration(time.Second)
	s, err := sealer.New(sealer.Config{DB: f.db, File: file, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return func() {
		f.t.Helper()
		cancel()
		if err := <-ended; err != nil {
			f.t.Error(err)
		}
	}
}

// await waits until a directory contains the checkpoint of n leaves.
func (f *fixture) await(file sealer.File, n int64) {
	f.t.Helper()
	for {
		c, found, err := seal.Directory(file.Directory).Checkpoint()
		if err != nil {
			f.t.Fatal(err)
		}
		if found && c.Size == n {
			return
		}
		select {
		case <-f.t.Context().Done():
			f.t.Fatalf("the directory has %+v, want %d leaves", c, n)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Of two processes one seals and publishes. When it stops, the other takes over, with a directory of its own.
func TestOneSealer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first, second := f.file("first"), f.file("second")
	f.enqueue("1")
	stopFirst := f.start(first)
	f.await(first, 1)
	stopSecond := f.start(second)
	for i := range 3 {
		f.enqueue(fmt.Sprint("more", i))
		f.await(first, int64(2+i))
	}
	if c, found, err := seal.Directory(second.Directory).Checkpoint(); found || err != nil {
		t.Errorf("the process that stands by has published %+v: %v", c, err)
	}
	stopFirst()
	f.enqueue("last")
	f.await(second, 5)
	stopSecond()
	f.observe(second, seal.Policy{})
	report, err := seal.Verify(t.Context(), ledgertest.As(t, f.app, "reader"), nil)
	if err != nil || !report.IsValid() || report.Checkpoint.Size != 5 {
		t.Errorf("%+v, %v", report, err)
	}
}

// The lease of a sealer that was killed expires, and another process takes over.
func TestKilledSealerIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue("1")
	ledgertest.ExecAsOwner(t, f.db, `insert into taskledger.lease (name, holder, alive_until, term)
		values ('sealer', 'killed', clock_timestamp() + interval '1 s', interval '5 s')`)
	file := f.file("log")
	stop := f.start(file)
	f.await(file, 1)
	stop()
}

// A service without a key seals, and publishes nothing.
func TestServiceWithoutKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue("1", "2")
	stop := f.start(sealer.File{})
	for {
		c, err := seal.Newest(t.Context(), f.db)
		if err != nil {
			t.Fatal(err)
		}
		if c.Size == 2 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
}
