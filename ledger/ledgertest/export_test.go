package ledgertest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgserver"
)

// ForgetServer makes the next call of URL read the environment again.
func ForgetServer(t *testing.T) {
	old := sharedTemplates
	sharedTemplates = sync.OnceValues(findServer)
	t.Cleanup(func() { sharedTemplates = old })
}

// MakeTemplate creates the template on a server, as the first test of a process does.
func MakeTemplate(ctx context.Context, address string) error {
	_, err := newTemplates(ctx, address)
	return err
}

// SetReleaseTimeout changes releaseTimeout for a test.
func SetReleaseTimeout(t *testing.T, d time.Duration) {
	old := releaseTimeout
	releaseTimeout = d
	t.Cleanup(func() { releaseTimeout = old })
}

// UseOwnServer gives a test a server of its own.
func UseOwnServer(t *testing.T) {
	t.Helper()
	server, err := pgserver.Start(t.Context(), pgserver.Config{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	made, err := newTemplates(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	made.reuse = newReuse()
	old := sharedTemplates
	sharedTemplates = func() (*templates, error) { return made, nil }
	t.Cleanup(func() {
		sharedTemplates = old
		made.admin.Close()
	})
}

// KeepConnections makes connections with this configuration go on in a later test when they are closed.
func KeepConnections(t *testing.T, config *pgx.ConnConfig) {
	t.Helper()
	dialer := dialerFor(config)
	if dialer == nil {
		t.Fatal("the database is not one of a test")
	}
	dialer.Keep()
}
