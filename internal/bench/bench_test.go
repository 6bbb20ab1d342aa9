package bench_test

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/bench"
)

// Every measure runs and gives figures; what they are is for people to judge.
func TestRun(t *testing.T) {
	r, err := bench.Run(t.Context(), bench.Config{Scale: 0.01, Lasts: 200 * time.Millisecond, View: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Figures {
		if f.Value <= 0 {
			t.Errorf("%s is %v %s", f.Measure, f.Value, f.Unit)
		}
	}
}
