package taskledger_test

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A handler that does not return may hold a connection that it has acquired. Close returns nevertheless, so that the
// process ends.
func TestCloseDoesNotWaitForAHandlerThatHangs(t *testing.T) {
	t.Parallel()
	c, err := taskledger.Open(t.Context(), taskledger.Options{DatabaseURL: ledgertest.URL(t)})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.DB.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	closed := make(chan struct{})
	go func() { defer close(closed); c.Close() }()
	select {
	case <-closed:
	case <-time.After(10 * taskledger.CloseTimeout):
		t.Error("Close has not returned")
	}
}
