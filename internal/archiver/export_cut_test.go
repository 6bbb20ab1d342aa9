package archiver_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/ledger"
)

// laterFiles stores tasks, and waits before they are removed.
type laterFiles struct {
	archiver.Files

	stored chan<- struct{}
	remove <-chan struct{}
}

func (l laterFiles) Store(ctx context.Context, tasks []archiver.Task) (string, error) {
	name, err := l.Files.Store(ctx, tasks)
	close(l.stored)
	<-l.remove
	return name, err
}

// afterEvents calls do before the statement that follows the first page of events in its session, and others wait.
type afterEvents struct {
	mu   sync.Mutex
	conn *pgx.Conn
	do   func()
}

func (a *afterEvents) TraceQueryStart(
	ctx context.Context, conn *pgx.Conn, d pgx.TraceQueryStartData,
) context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case strings.HasPrefix(d.SQL, "-- The next events from one position to another"):
		a.conn = conn
	case conn == a.conn && a.do != nil:
		a.do()
		a.do = nil
	}
	return ctx
}

func (*afterEvents) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// An archiver removes tasks and the rows of their seal while an export reads a page. All events are in the files, with
// their leaves.
func TestExportWhileTheSealIsCut(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"archive", "another"} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			f := newCutFixture(t)
			f.Project()
			stored, remove, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() {
				files := laterFiles{Files: f.files(), stored: stored, remove: remove}
				_, err := archiver.Run(f.Context(), f.As("archiver"), archiver.Options{Files: files})
				ended <- err
			}()
			<-stored
			config := f.As("reader").Config()
			config.ConnConfig.Tracer = &afterEvents{do: func() {
				close(remove)
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}}
			db, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(db.Close)
			place := filepath.Join(filepath.Dir(f.place), to)
			m, err := archive.Export(t.Context(), db, archive.Directory(place), nil)
			if err != nil {
				t.Fatal(err)
			}
			f.wantRows("4")
			if m.Events < 256 || m.Events >= 1006 {
				t.Errorf("%d events", m.Events)
			}
			positions := make(map[ledger.Position]bool)
			for _, place := range []string{place, f.place} {
				r, err := archive.Verify(t.Context(), archive.Directory(place), nil)
				if err != nil || r.Unproved > 0 {
					t.Errorf("%s: %+v, %v", place, r, err)
				}
				files, err := archive.Open(t.Context(), archive.Directory(place))
				if err != nil {
					t.Fatal(err)
				}
				if err := files.Range(t.Context(), 0, func(r archive.Record) error {
					positions[r.Position] = true
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			if len(positions) != 1006 {
				t.Errorf("%d events are in the files", len(positions))
			}
		})
	}
}
