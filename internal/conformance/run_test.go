package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/conformance"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// asClient names the environment variable with which the test's program is the client under test. Its value is the
// mutation of the client, or "correct".
const asClient = "CONFORMANCE_CLIENT"

func TestMain(m *testing.M) {
	if mutation := os.Getenv(asClient); mutation != "" {
		if err := work(mutation); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// instructions are the args of a task.
type instructions struct {
	Do        string          `json:"do"`
	Value     json.RawMessage `json:"value"`
	Error     string          `json:"error"`
	Permanent bool            `json:"permanent"`
	RetryIn   *float64        `json:"retry_in"`
	Seconds   float64         `json:"seconds"`
	Bytes     int             `json:"bytes"`
}

// work is a client in Go, that carries out the instructions.
func work(mutation string) error {
	ctx, stop := workers.SignalContext(context.Background())
	defer stop()
	c, err := client.New(client.Config{URL: os.Getenv("TASKLEDGER_URL"), Token: os.Getenv("TASKLEDGER_TOKEN")})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	begun := map[ledger.BizID]int{}
	return c.Work(ctx, client.WorkOptions{
		Kinds: []ledger.Kind{"conformance.task"}, Slots: 4, StopTimeout: 3 * time.Second,
		Handle: func(ctx context.Context, t client.WorkTask) (any, error) {
			mu.Lock()
			begun[t.BizID]++
			n := begun[t.BizID]
			mu.Unlock()
			if mutation == "ignores the end" {
				ctx = context.WithoutCancel(ctx)
			}
			return carryOut(ctx, c, t, n)
		},
	})
}

func carryOut(ctx context.Context, c *client.Client, t client.WorkTask, n int) (any, error) {
	var i instructions
	if err := json.Unmarshal(t.Args, &i); err != nil {
		return nil, err
	}
	switch i.Do {
	case "return":
		return i.Value, nil
	case "echo":
		return map[string]any{"kind": t.Kind, "biz_id": t.BizID, "attempt": t.Attempt, "args": t.Args}, nil
	case "count":
		return n, nil
	case "sleep":
		select {
		case <-time.After(time.Duration(i.Seconds * float64(time.Second))):
			return i.Value, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	case "large":
		return strings.Repeat("x", i.Bytes), nil
	case "fail":
		failure := &client.FailError{Err: errors.New(i.Error), Permanent: i.Permanent}
		if i.RetryIn != nil {
			in := time.Duration(*i.RetryIn * float64(time.Second))
			failure.RetryIn = &in
		}
		return nil, failure
	case "snooze":
		return nil, &client.SnoozeError{In: time.Duration(i.Seconds * float64(time.Second))}
	case "progress":
		return i.Value, c.Progress(ctx, t, i.Value)
	}
	return nil, fmt.Errorf("unknown instruction %q", i.Do)
}

func check(t *testing.T, mutation, only string) []conformance.Result {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return conformance.Run(t.Context(), conformance.Config{
		Command: []string{self}, Env: []string{asClient + "=" + mutation}, Only: only, Patience: 30 * time.Second,
	})
}

// The client in Go passes every scenario.
func TestClientInGo(t *testing.T) {
	t.Parallel()
	results := check(t, "correct", "")
	if len(results) != len(conformance.Scenarios()) {
		t.Errorf("%d results", len(results))
	}
	for _, r := range results {
		if len(r.Faults) > 0 {
			t.Errorf("%s: %s\n%s", r.Scenario, strings.Join(r.Faults, "\n"), r.Log)
		}
	}
}

// A client that does not stop the handlers of attempts that are over fails.
func TestMutantsFail(t *testing.T) {
	t.Parallel()
	for _, r := range check(t, "ignores the end", "cancelled") {
		if len(r.Faults) == 0 {
			t.Errorf("%s has passed", r.Scenario)
		}
	}
}
