package archiver_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The service warns of a reader only if tasks wait for it longer than a reader that keeps up needs.
func TestServiceWarnsOfALateReader(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1")
	for _, isLate := range []bool{false, true} {
		if isLate {
			ledgertest.ExecAsOwner(t, f.DB, "alter table taskledger.event disable trigger user")
			ledgertest.ExecAsOwner(t, f.DB,
				"update taskledger.event set recorded_at = clock_timestamp() - interval '31 s'")
		}
		var log bytes.Buffer
		service, err := archiver.New(archiver.Config{DB: f.As("archiver"), After: time.Microsecond,
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		ended := f.text("select count(*)::text from taskledger.archive_run where held = 1")
		go func() { done <- service.Run(ctx) }()
		for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(50 * time.Millisecond) {
			if f.text("select count(*)::text from taskledger.archive_run where held = 1") != ended {
				time.Sleep(100 * time.Millisecond) // the line of the log follows
				break
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if warned := strings.Contains(log.String(), "holds finished tasks"); warned != isLate {
			t.Errorf("late %v: %s", isLate, &log)
		}
	}
}
