package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
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
	c, err := client.New(client.Config{URL: os.Getenv("TASKLEDGER_URL"), Token: os.Getenv("TASKLEDGER_TOKEN"),
		HTTP: &http.Client{Transport: mutant{mutation, http.DefaultTransport}}})
	if err != nil {
		return err
	}
	slots := 4
	if mutation == "uses one slot" {
		slots = 1
	}
	var mu sync.Mutex
	begun := map[ledger.BizID]int{}
	err = c.Work(ctx, client.WorkOptions{
		Kinds: []ledger.Kind{"conformance.task"}, Slots: slots, StopTimeout: 3 * time.Second,
		Handle: func(ctx context.Context, t client.WorkTask) (any, error) {
			mu.Lock()
			begun[t.BizID]++
			n := begun[t.BizID]
			mu.Unlock()
			switch mutation {
			case "ignores the end":
				ctx = context.WithoutCancel(ctx)
			case "cuts args":
				t.Args = t.Args[:min(len(t.Args), 100_000)]
			case "cuts keys":
				t.BizID = t.BizID[:min(len(t.BizID), 100)]
			case "trusts its clock":
				if !t.FinishBy.IsZero() && time.Now().After(t.FinishBy) {
					return nil, errors.New("too late")
				}
			}
			return carryOut(ctx, c, t, n)
		},
	})
	if mutation == "hides the refusal" {
		return nil
	}
	return err
}

// mutant is the transport of a client that does not keep the protocol.
type mutant struct {
	mutation string
	http.RoundTripper
}

func (m mutant) RoundTrip(r *http.Request) (*http.Response, error) {
	call := strings.TrimPrefix(r.URL.Path, "/v1/work")
	text := func(status int, body string) (*http.Response, error) {
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: r,
			Header: http.Header{"Content-Type": {"application/json"}}}, nil
	}
	change := func(pattern, with string) {
		body, _ := io.ReadAll(r.Body)
		body = regexp.MustCompile(pattern).ReplaceAll(body, []byte(with))
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	switch m.mutation + call {
	case "sends no heartbeats:heartbeat":
		return text(http.StatusOK, `{"ended": [], "heartbeat_every": 0.2}`)
	case "never releases:release":
		return text(http.StatusOK, `{"released": 0}`)
	case "reports no progress:progress":
		return text(http.StatusOK, `{"state": "running"}`)
	case "has one session":
		change(`"session":"[^"]*"`, `"session":"0123456789abcdef"`)
	case "loses results:finish":
		change(`"result":("text"|\[\])`, `"result":0`)
	case "loses delays:fail":
		change(`"retry_in":[0-9.]+`, `"retry_in":1`)
	}
	answer, err := m.RoundTripper.RoundTrip(r)
	switch {
	case m.mutation == "repeats no outcome" && err != nil && (call == ":finish" || call == ":fail"):
		return text(http.StatusOK, `{"state": "succeeded", "tasks": [{"state": "succeeded"}]}`)
	case m.mutation == "repeats no request" && err != nil && call == "":
		return text(http.StatusBadRequest, `{}`)
	case err != nil:
		return answer, err
	case m.mutation == "does not wait":
		answer.Header.Del("Retry-After")
	case m.mutation == "repeats a refusal" && answer.StatusCode >= 400 && answer.StatusCode < 500:
		return text(http.StatusServiceUnavailable, `{}`)
	case m.mutation == "repeats a refusal" && call == ":finish":
		body, err := io.ReadAll(answer.Body)
		if bytes.Contains(body, []byte(`"problem"`)) {
			return text(http.StatusServiceUnavailable, `{}`)
		}
		answer.Body = io.NopCloser(bytes.NewReader(body))
		return answer, err
	case m.mutation == "begins again" && call == "":
		body, err := io.ReadAll(answer.Body)
		version := fmt.Appendf(nil, `"version":%d`, time.Now().UnixMicro()%1e9)
		body = regexp.MustCompile(`"version":\d+`).ReplaceAll(body, version)
		answer.Body = io.NopCloser(bytes.NewReader(body))
		return answer, err
	case m.mutation == "stops at a hint" && call == "":
		body, err := io.ReadAll(answer.Body)
		if bytes.Contains(body, []byte("unknown_kinds")) {
			return text(http.StatusBadRequest, `{}`)
		}
		answer.Body = io.NopCloser(bytes.NewReader(body))
		return answer, err
	}
	return answer, nil
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

func check(t *testing.T, mutation, only string, patience time.Duration) []conformance.Result {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return conformance.Run(t.Context(), conformance.Config{
		Command: []string{self}, Env: []string{asClient + "=" + mutation}, Only: only, Patience: patience,
	})
}

// The client in Go passes every scenario.
func TestClientInGo(t *testing.T) {
	t.Parallel()
	results := check(t, "correct", "", 30*time.Second)
	if len(results) != len(conformance.Scenarios()) {
		t.Errorf("%d results", len(results))
	}
	for _, r := range results {
		if len(r.Faults) > 0 {
			t.Errorf("%s: %s\n%s", r.Scenario, strings.Join(r.Faults, "\n"), r.Log)
		}
	}
}

// Each scenario fails for a client that breaks its rule.
func TestMutantsFail(t *testing.T) {
	t.Parallel()
	failed := map[string]bool{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, test := range []struct{ mutation, scenarios string }{
		{mutation: "ignores the end", scenarios: "while running"},
		{mutation: "cuts args", scenarios: "large args"},
		{mutation: "cuts keys", scenarios: "unicode keys"},
		{mutation: "trusts its clock", scenarios: "clocks"},
		{mutation: "hides the refusal", scenarios: "refused by the server"},
		{mutation: "uses one slot", scenarios: "credit"},
		{mutation: "sends no heartbeats", scenarios: "heartbeats"},
		{mutation: "never releases", scenarios: "shutdown"},
		{mutation: "reports no progress", scenarios: "progress"},
		{mutation: "has one session", scenarios: "killed"},
		{mutation: "loses results", scenarios: "results of every type"},
		{mutation: "loses delays", scenarios: "failures"},
		{mutation: "repeats no outcome", scenarios: "a lost answer to an outcome"},
		{mutation: "does not wait", scenarios: "unavailable"},
		{mutation: "repeats a refusal", scenarios: "a refused result"},
		{mutation: "repeats a refusal", scenarios: "an attempt that has ended"},
		{mutation: "begins again", scenarios: "comes again"},
		{mutation: "repeats no request", scenarios: "a lost answer with tasks"},
		{mutation: "begins again", scenarios: "newer fence"},
		{mutation: "stops at a hint", scenarios: "a kind without tasks"},
	} {
		all.Go(func() {
			for _, r := range check(t, test.mutation, test.scenarios, 3*time.Second) {
				mu.Lock()
				failed[r.Scenario] = len(r.Faults) > 0
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for _, name := range conformance.Scenarios() {
		if !failed[name] {
			t.Errorf("no client fails %q", name)
		}
	}
}
