package console

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// The story of an erased task, of whose attempt nothing is known, names no worker and no time.
func TestStoryOfAnErasedTask(t *testing.T) {
	ended := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	task := ledger.Task{State: ledger.StateSucceeded, Attempt: 1, UpdatedAt: ended}
	told := "Succeeded after 1 attempt, " + age(35*time.Second) + " after it was enqueued"
	for worker, want := range map[string]string{
		"": told + ".", "w-1": told + "; it ran for " + age(2*time.Second) + " on w-1.",
	} {
		attempts := []*attempt{{Worker: worker, Began: ended.Add(-2 * time.Second), Ended: ended}}
		if got := tellStory(task, attempts, ended.Add(-35*time.Second), ended); got != want {
			t.Errorf("%q: %s", worker, got)
		}
	}
}
