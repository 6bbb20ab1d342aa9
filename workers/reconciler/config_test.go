package reconciler_test

import (
	"testing"

	"github.com/taskledger/taskledger/workers/reconciler"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := reconciler.New(reconciler.Config{Every: -1})
	want := "reconciler: DB is required\nNATS is required\nEvery must not be negative, got -1ns"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}
