package ledgertest

import (
	"context"
	"sync"
	"testing"
	"time"
)

// ForgetServer lets the next database be made where the environment says now.
func ForgetServer(t *testing.T) {
	old := shared
	shared = sync.OnceValues(findServer)
	t.Cleanup(func() { shared = old })
}

// MakeTemplate makes the template on a server, as the first test of a process does.
func MakeTemplate(ctx context.Context, address string) error {
	_, err := newTemplates(ctx, address)
	return err
}

// SetRelease changes how long a connection may take to come back.
func SetRelease(t *testing.T, d time.Duration) {
	old := release
	release = d
	t.Cleanup(func() { release = old })
}
