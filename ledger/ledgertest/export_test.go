package ledgertest

import (
	"context"
	"sync"
	"testing"
	"time"
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
