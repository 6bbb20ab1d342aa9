package reconciler_test

import (
	"testing"

	"github.com/taskledger/taskledger/workers/reconciler"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := reconciler.New(reconciler.Config{Every: -1})
	want := "reconciler: DB is required\nNATS is required\nEvery must be at least 0s, got -1ns"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}
