package ledger_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// delays returns the delays after the first n failures, without jitter.
func delays(p ledger.RetryPolicy, n int) []time.Duration {
	var all []time.Duration
	for i := range n {
		all = append(all, p.Delay(i+1, 0))
	}
	return all
}

// parseRetry returns the policy in text and fails the test if it is invalid.
func parseRetry(t *testing.T, text string) ledger.RetryPolicy {
	t.Helper()
	p, err := ledger.ParseRetryPolicy(json.RawMessage(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

func TestRetryPolicyJSON(t *testing.T) {
	t.Parallel()
	const s, m, h, us = time.Second, time.Minute, time.Hour, time.Microsecond
	tests := []struct {
		text   string
		policy ledger.RetryPolicy
		delays []time.Duration // after the first failures
		limit  int
		again  string // the JSON that MarshalJSON returns, if it is not text
	}{
		{
			text:   `{}`,
			delays: []time.Duration{s, 16 * s, 81 * s, 256 * s, 625 * s}, limit: 25,
		},
		{
			text:   `{"unit":0.1,"max":1,"attempts":3}`,
			policy: ledger.RetryPolicy{Unit: 100 * time.Millisecond, Max: s, Attempts: 3},
			delays: []time.Duration{100 * time.Millisecond, s, s, s}, limit: 3,
		},
		{
			text:   `{"attempts":25}`,
			policy: ledger.RetryPolicy{Attempts: 25},
			delays: []time.Duration{s, 16 * s}, limit: 25,
		},
		{
			text:   `{"ladder":[60,300,1200]}`,
			policy: ledger.RetryPolicy{Ladder: []time.Duration{m, 5 * m, 20 * m}},
			delays: []time.Duration{m, 5 * m, 20 * m, 20 * m}, limit: 4,
		},
		{
			text:   `{"ladder":[60,300,1200],"attempts":10}`,
			policy: ledger.RetryPolicy{Ladder: []time.Duration{m, 5 * m, 20 * m}, Attempts: 10},
			delays: []time.Duration{m, 5 * m, 20 * m, 20 * m}, limit: 10,
		},
		{
			text:   `{"ladder":[60,300,1200],"attempts":2}`,
			policy: ledger.RetryPolicy{Ladder: []time.Duration{m, 5 * m, 20 * m}, Attempts: 2},
			delays: []time.Duration{m, 5 * m, 20 * m}, limit: 2,
		},
		{
			text:   ` { "attempts" : 1e1 , "ladder" : [ 60.0 , 54e2 ] } `,
			policy: ledger.RetryPolicy{Ladder: []time.Duration{m, 90 * m}, Attempts: 10},
			delays: []time.Duration{m, 90 * m, 90 * m}, limit: 10, again: `{"ladder":[60,5400],"attempts":10}`,
		},
		{
			text:   `{"ladder":[10],"attempts":25,"jitter":0.25}`,
			policy: ledger.RetryPolicy{Ladder: []time.Duration{10 * s}, Attempts: 25, Jitter: 0.25},
			delays: []time.Duration{10 * s, 10 * s, 10 * s}, limit: 25,
		},
		{
			text:   `{"ladder":[0,3600],"jitter":0}`,
			policy: ledger.RetryPolicy{Ladder: []time.Duration{0, h}, Jitter: -1},
			delays: []time.Duration{0, h}, limit: 3,
		},
		{
			text:   `{"ladder":[3600],"max":600}`,
			policy: ledger.RetryPolicy{Ladder: []time.Duration{h}, Max: 10 * m},
			delays: []time.Duration{10 * m, 10 * m}, limit: 2,
		},
		{
			text:   `{"ladder":[0.000001,31622399.999999,0.30000000000000004]}`,
			policy: ledger.RetryPolicy{Ladder: []time.Duration{us, ledger.MaxRetryDelay - us, 300 * time.Millisecond}},
			delays: []time.Duration{us, ledger.MaxRetryDelay - us, 300 * time.Millisecond}, limit: 4,
			again: `{"ladder":[0.000001,31622399.999999,0.3]}`,
		},
		{
			text:   `{"ladder":null,"unit":null,"max":null,"attempts":null,"jitter":null}`,
			delays: []time.Duration{s, 16 * s}, limit: 25, again: `{}`,
		},
		{
			text:   `{"ladder":[],"unit":2,"unit":3}`,
			policy: ledger.RetryPolicy{Unit: 3 * s},
			delays: []time.Duration{3 * s}, limit: 25, again: `{"unit":3}`,
		},
	}
	for _, test := range tests {
		t.Run(test.text, func(t *testing.T) {
			t.Parallel()
			p := parseRetry(t, test.text)
			if diff := difference.Of(test.policy, p); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
			if diff := difference.Of(test.delays, delays(p, len(test.delays))); diff != "" {
				t.Errorf("delays (-want +got):\n%s", diff)
			}
			if p.Limit() != test.limit {
				t.Errorf("dead after %d failures, want %d", p.Limit(), test.limit)
			}
			want := test.again
			if want == "" {
				want = test.text
			}
			if got, err := json.Marshal(p); err != nil || string(got) != want {
				t.Errorf("encoded as %s, %v; want %s", got, err, want)
			}
		})
	}
}

// A policy can be a member of other JSON, for example of a configuration. null leaves it unchanged.
func TestRetryPolicyAsMember(t *testing.T) {
	t.Parallel()
	config := struct{ Retry ledger.RetryPolicy }{ledger.RetryPolicy{Attempts: 7}}
	if err := json.Unmarshal([]byte(`{"Retry":null}`), &config); err != nil || config.Retry.Attempts != 7 {
		t.Errorf("null: %+v, %v", config, err)
	}
	if err := json.Unmarshal([]byte(`{"Retry":{"max":60}}`), &config); err != nil ||
		config.Retry.Max != time.Minute || config.Retry.Attempts != 0 {
		t.Errorf("an object: %+v, %v", config, err)
	}
	var invalid *ledger.InvalidError
	err := json.Unmarshal([]byte(`{"Retry":{"max":0}}`), &config)
	if !errors.As(err, &invalid) || invalid.Field != "retry.max" {
		t.Errorf("max 0: got error %v, want an InvalidError for retry.max", err)
	}
	_, err = json.Marshal(ledger.RetryPolicy{Attempts: -1})
	if !errors.As(err, &invalid) || invalid.Field != "retry.attempts" {
		t.Errorf("attempts -1: got error %v, want an InvalidError for retry.attempts", err)
	}
}

// The error of an invalid policy names the member and its value.
func TestInvalidRetryPolicy(t *testing.T) {
	t.Parallel()
	hundred := strings.Repeat("1,", 100)
	for _, test := range []struct {
		text  string
		field string
		shown string
	}{
		{text: ``, field: "retry", shown: "JSON object"},
		{text: `null`, field: "retry", shown: "JSON object"},
		{text: `5`, field: "retry", shown: "JSON object"},
		{text: `[60,300]`, field: "retry", shown: "JSON object"},
		{text: `"1m,5m"`, field: "retry", shown: "JSON object"},
		{text: `{"max":60`, field: "retry", shown: "JSON object"},
		{text: `sometimes`, field: "retry", shown: "sometimes"},
		{text: `{"colour":"red"}`, field: "retry", shown: "colour"},
		{text: `{"colour":null}`, field: "retry", shown: "colour"},
		{text: `{"Max":60}`, field: "retry", shown: "Max"},
		{text: `{"unit":0}`, field: "retry.unit", shown: `"0"`},
		{text: `{"unit":-1}`, field: "retry.unit", shown: `"-1"`},
		{text: `{"unit":0.0000004}`, field: "retry.unit", shown: "0.0000004"},
		{text: `{"unit":"1s"}`, field: "retry.unit", shown: "1s"},
		{text: `{"unit":[1]}`, field: "retry.unit", shown: "[1]"},
		{text: `{"max":0}`, field: "retry.max", shown: `"0"`},
		{text: `{"max":31622401}`, field: "retry.max", shown: "31622401"},
		{text: `{"max":1e400}`, field: "retry.max", shown: "1e400"},
		{text: `{"max":1e-400}`, field: "retry.max", shown: "1e-400"},
		{text: `{"max":true}`, field: "retry.max", shown: "true"},
		{text: `{"attempts":0}`, field: "retry.attempts", shown: `"0"`},
		{text: `{"attempts":-1}`, field: "retry.attempts", shown: `"-1"`},
		{text: `{"attempts":1000001}`, field: "retry.attempts", shown: "1000001"},
		{text: `{"attempts":1.5}`, field: "retry.attempts", shown: "1.5"},
		{text: `{"attempts":"5"}`, field: "retry.attempts", shown: "5"},
		{text: `{"jitter":1.5}`, field: "retry.jitter", shown: "1.5"},
		{text: `{"jitter":-0.1}`, field: "retry.jitter", shown: "-0.1"},
		{text: `{"jitter":"NaN"}`, field: "retry.jitter", shown: "NaN"},
		{text: `{"ladder":60}`, field: "retry.ladder", shown: "60"},
		{text: `{"ladder":{"0":60}}`, field: "retry.ladder", shown: "60"},
		{text: `{"ladder":[60,-1]}`, field: "retry.ladder", shown: "-1"},
		{text: `{"ladder":[60,null]}`, field: "retry.ladder", shown: "null"},
		{text: `{"ladder":[60,[300]]}`, field: "retry.ladder", shown: "[300]"},
		{text: `{"ladder":["60"]}`, field: "retry.ladder", shown: "60"},
		{text: `{"ladder":[31622401]}`, field: "retry.ladder", shown: "31622401"},
		{text: `{"ladder":[60],"unit":1}`, field: "retry.unit", shown: "together with ladder"},
		{text: `{"ladder":[` + hundred + `1]}`, field: "retry.ladder", shown: "100"},
	} {
		var invalid *ledger.InvalidError
		p, err := ledger.ParseRetryPolicy(json.RawMessage(test.text))
		if !errors.As(err, &invalid) || invalid.Field != test.field || !strings.Contains(err.Error(), test.shown) {
			t.Errorf("%.40s: %v, %v; want an InvalidError for %s with %q", test.text, p, err, test.field, test.shown)
		}
	}
	if p := parseRetry(t, `{"ladder":[`+strings.TrimSuffix(hundred, ",")+`]}`); len(p.Ladder) != 100 {
		t.Errorf("a ladder of 100 rungs is parsed as one of %d", len(p.Ladder))
	}
}

// ParseRetryPolicy and Validate return all faults at once.
func TestRetryPolicyFaultsAtOnce(t *testing.T) {
	t.Parallel()
	_, parsed := ledger.ParseRetryPolicy(json.RawMessage(`{"max":0,"attempts":0,"jitter":2}`))
	for name, err := range map[string]error{
		"ParseRetryPolicy": parsed,
		"Validate":         ledger.RetryPolicy{Max: time.Nanosecond, Attempts: -1, Jitter: math.NaN()}.Validate(),
	} {
		for _, member := range []string{"retry.max", "retry.attempts", "retry.jitter"} {
			if !strings.Contains(fmt.Sprint(err), member) {
				t.Errorf("%s: error %q does not name %s", name, err, member)
			}
		}
	}
}

// A delay is within its bounds for every policy, number of failures and random number.
func TestRetryDelayBounds(t *testing.T) {
	t.Parallel()
	policies := []ledger.RetryPolicy{
		{},
		{Unit: time.Microsecond},
		{Unit: ledger.MaxRetryDelay, Max: ledger.MaxRetryDelay},
		{Max: time.Hour, Jitter: 1},
		{Jitter: -1},
		{Ladder: []time.Duration{0, time.Minute, ledger.MaxRetryDelay}},
		{Ladder: []time.Duration{time.Minute}, Max: time.Second},
	}
	for _, p := range policies {
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		for n := range 10_001 {
			most, least := p.Delay(n, 0), p.Delay(n, math.Nextafter(1, 0))
			longest := p.Max
			if longest == 0 {
				longest = ledger.DefaultRetryMax
				if len(p.Ladder) > 0 {
					longest = slices.Max(p.Ladder)
				}
			}
			if least < 0 || least > most || most > longest {
				t.Fatalf("%+v after failure %d: %s to %s, beyond %s", p, n, least, most, longest)
			}
			if n > 1 && len(p.Ladder) == 0 && most < p.Delay(n-1, 0) {
				t.Fatalf("%+v: the delay after failure %d is shorter than the one before", p, n)
			}
		}
	}
	isInBounds := func(unit, longest, rung int64, n int, jitter, random float64) bool {
		p := ledger.RetryPolicy{Unit: time.Duration(unit), Max: time.Duration(longest), Jitter: jitter}
		if n%2 == 0 {
			p.Ladder = []time.Duration{time.Duration(rung)}
		}
		d := p.Delay(n, random)
		return d >= 0 && d <= ledger.MaxRetryDelay
	}
	if err := quick.Check(isInBounds, &quick.Config{MaxCount: 20_000}); err != nil {
		t.Error(err)
	}
}

// The random part of a delay is at most its share, and evenly distributed.
func TestRetryJitter(t *testing.T) {
	t.Parallel()
	for text, least := range map[string]time.Duration{
		`{}`:                           500 * time.Millisecond,
		`{"jitter":0}`:                 time.Second,
		`{"jitter":1}`:                 0,
		`{"ladder":[1]}`:               900 * time.Millisecond,
		`{"ladder":[1],"jitter":0.25}`: 750 * time.Millisecond,
	} {
		p := parseRetry(t, text)
		if got := p.Delay(1, 0); got != time.Second {
			t.Errorf("%s: at most %s, want 1s", text, got)
		}
		if got := p.Delay(1, math.Nextafter(1, 0)); got.Round(time.Microsecond) != least {
			t.Errorf("%s: at least %s, want %s", text, got, least)
		}
		if got, want := p.Delay(1, 0.5), (time.Second+least)/2; got.Round(time.Microsecond) != want {
			t.Errorf("%s: in the middle %s, want %s", text, got, want)
		}
	}
}

// A policy that is parsed, encoded and parsed again is the same.
func FuzzParseRetryPolicy(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"ladder":[60,300,1200],"attempts":10,"jitter":0.3}`, `{"ladder":[0],"max":3600}`,
		`{"unit":0.001,"max":5400.000001,"jitter":0}`, `{"unit":1e-6}`, `{"ladder":[-0,31622400]}`, `{"jitter":5e-324}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ledger.ParseRetryPolicy(json.RawMessage(text))
		if err != nil {
			return
		}
		if err := p.Validate(); err != nil {
			t.Fatalf("%q is parsed as an invalid policy: %v", text, err)
		}
		written, err := json.Marshal(p)
		if err != nil {
			t.Fatalf("%q cannot be encoded: %v", text, err)
		}
		again, err := ledger.ParseRetryPolicy(written)
		if err != nil {
			t.Fatalf("%q is encoded as %s, which is invalid: %v", text, written, err)
		}
		if diff := difference.OfContents(p, again); diff != "" {
			t.Fatalf("%q is encoded as %s, which is another policy (-first +second):\n%s", text, written, diff)
		}
	})
}

// The policy of a task is stored in its meta.
func TestEnqueueWithRetryPolicy(t *testing.T) {
	t.Parallel()
	ctx, db := t.Context(), ledgertest.Pool(t)
	k := ledger.Key{Kind: "retry", BizID: "1"}
	policy := ledger.RetryPolicy{Ladder: []time.Duration{time.Minute, 5 * time.Minute}}
	if _, err := ledger.Enqueue(ctx, db, k, nil, &ledger.EnqueueOptions{Retry: &policy}); err != nil {
		t.Fatal(err)
	}
	history, err := ledger.History(ctx, db, k)
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of(json.RawMessage(`{"retry":{"ladder":[60,300]}}`), history[0].Meta); diff != "" {
		t.Errorf("meta (-want +got):\n%s", diff)
	}
	meta, err := ledger.ParseMeta(history[0].Meta)
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of(policy, parseRetry(t, string(meta.Retry))); diff != "" {
		t.Errorf("policy (-enqueued +stored):\n%s", diff)
	}
	for _, test := range []struct {
		options ledger.EnqueueOptions
		field   string
	}{
		{options: ledger.EnqueueOptions{Retry: &ledger.RetryPolicy{Attempts: -1}}, field: "retry.attempts"},
		{options: ledger.EnqueueOptions{Meta: ledger.Meta{Retry: json.RawMessage(`"now and then"`)}}, field: "retry"},
		{options: ledger.EnqueueOptions{Meta: ledger.Meta{Retry: json.RawMessage(`now and then`)}}, field: "retry"},
	} {
		var invalid *ledger.InvalidError
		_, err := ledger.Enqueue(ctx, db, ledger.Key{Kind: "retry", BizID: "2"}, nil, &test.options)
		if !errors.As(err, &invalid) || invalid.Field != test.field {
			t.Errorf("%+v: got error %v, want an InvalidError for %s", test.options, err, test.field)
		}
	}
}
