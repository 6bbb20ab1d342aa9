package ledger_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// delays are those after the first failures, without chance.
func delays(p ledger.RetryPolicy, n int) []time.Duration {
	var all []time.Duration
	for i := range n {
		all = append(all, p.Delay(i+1, 0))
	}
	return all
}

func TestRetryPolicyText(t *testing.T) {
	t.Parallel()
	const s, m, h = time.Second, time.Minute, time.Hour
	tests := []struct {
		text   string
		delays []time.Duration // of the first failures
		limit  int
		again  string // its String, if not text
	}{
		{"exponential", []time.Duration{s, 16 * s, 81 * s, 256 * s, 625 * s}, 25, ""},
		{"exponential unit=100ms max=1s attempts=3", []time.Duration{100 * time.Millisecond, s, s, s}, 3, ""},
		{"exponential attempts=25", []time.Duration{s, 16 * s}, 25, "exponential"},
		{"1m,5m,20m", []time.Duration{m, 5 * m, 20 * m, 20 * m}, 4, ""},
		{"1m,5m,20m,...", []time.Duration{m, 5 * m, 20 * m, 20 * m}, 25, ""},
		{"1m,5m,20m,... attempts=10", []time.Duration{m, 5 * m, 20 * m, 20 * m}, 10, ""},
		{"1m,5m,20m attempts=2", []time.Duration{m, 5 * m, 20 * m}, 2, ""},
		{"60s , 1h", nil, 0, ""},
		{"  60s,90m  attempts=10 ", []time.Duration{m, 90 * m, 90 * m}, 10, "1m,1h30m,... attempts=10"},
		{"10s,...", []time.Duration{10 * s, 10 * s, 10 * s}, 25, ""},
		{"0s,1h jitter=0", []time.Duration{0, h}, 3, ""},
		{"1h max=10m", []time.Duration{10 * m, 10 * m}, 2, ""},
	}
	for _, test := range tests {
		p, err := ledger.ParseRetryPolicy(test.text)
		if test.limit == 0 {
			if err == nil {
				t.Errorf("%q is read as %s", test.text, p)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", test.text, err)
			continue
		}
		if diff := cmp.Diff(test.delays, delays(p, len(test.delays))); diff != "" {
			t.Errorf("%q: delays (-want +got):\n%s", test.text, diff)
		}
		if p.Limit() != test.limit {
			t.Errorf("%q: dead after %d failures, want %d", test.text, p.Limit(), test.limit)
		}
		if want := test.again; p.String() != want && (want != "" || p.String() != test.text) {
			t.Errorf("%q is written as %q", test.text, p)
		}
	}
}

// What cannot be a policy is refused with the word that is wrong.
func TestRetryPolicyRefused(t *testing.T) {
	t.Parallel()
	for text, named := range map[string]string{
		"":                                "must be exponential",
		"linear":                          "linear",
		"exponential unit=0s":             "unit=0s",
		"exponential unit=-1s":            "-1s",
		"exponential attempts=0":          "attempts=0",
		"exponential attempts=-1":         "attempts=-1",
		"exponential attempts=1000001":    "1000001",
		"exponential attempts=1e3":        "attempts=1e3",
		"exponential jitter=1.5":          "1.5",
		"exponential jitter=-0.1":         "jitter=-0.1",
		"exponential jitter=NaN":          "NaN",
		"exponential max=9000h":           "9000h",
		"exponential max":                 `"max"`,
		"exponential max=1h max=2h":       "twice",
		"exponential colour=red":          "colour=red",
		"1m,-5m":                          "-5m",
		"1m,,5m":                          "must be exponential",
		"...":                             `"..."`,
		"1m,...,5m":                       `"..."`,
		"1m unit=1s":                      "not for a ladder",
		"9999999999999999999h":            "9999999999999999999h",
		"+1m":                             "+1m",
		".5s":                             ".5s",
		"exponential jitter=0x1p-2":       "jitter=0x1p-2",
		"exponential attempts=+5":         "attempts=+5",
		"exponential\tattempts=5":         "attempts=5",
		strings.Repeat("1s,", 100) + "1s": "100 rungs",
		strings.Repeat("1s,", 9999):       "longer",
	} {
		var invalid *ledger.InvalidError
		if p, err := ledger.ParseRetryPolicy(text); !errors.As(err, &invalid) || invalid.Field != "retry" || !strings.Contains(err.Error(), named) {
			t.Errorf("%.40q: %v, %v; want an InvalidError that says %q", text, p, err, named)
		}
	}
}

// Whatever the policy, failure and chance: a delay is within its bounds, and the ten-thousandth is
// as safe as the first.
func TestRetryDelayBounds(t *testing.T) {
	t.Parallel()
	policies := []ledger.RetryPolicy{
		{}, {Unit: time.Nanosecond}, {Unit: ledger.MaxRetryDelay, Max: ledger.MaxRetryDelay}, {Max: time.Hour, Jitter: 1}, {Jitter: -1},
		{Ladder: []time.Duration{0, time.Minute, ledger.MaxRetryDelay}}, {Ladder: []time.Duration{time.Minute}, Max: time.Second},
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
				t.Fatalf("%s after failure %d: %s to %s, beyond %s", p, n, least, most, longest)
			}
			if n > 1 && len(p.Ladder) == 0 && most < p.Delay(n-1, 0) {
				t.Fatalf("%s: failure %d waits shorter than the one before", p, n)
			}
		}
	}
	anything := func(unit, longest, rung int64, n int, jitter, random float64) bool {
		p := ledger.RetryPolicy{Unit: time.Duration(unit), Max: time.Duration(longest), Jitter: jitter}
		if n%2 == 0 {
			p.Ladder = []time.Duration{time.Duration(rung)}
		}
		d := p.Delay(n, random)
		return d >= 0 && d <= ledger.MaxRetryDelay
	}
	if err := quick.Check(anything, &quick.Config{MaxCount: 20_000}); err != nil {
		t.Error(err)
	}
}

// Chance takes no more than its share, and takes it evenly.
func TestRetryJitter(t *testing.T) {
	t.Parallel()
	for text, least := range map[string]time.Duration{
		"exponential": 500 * time.Millisecond, "exponential jitter=0": time.Second, "exponential jitter=1": 0,
		"1s": 900 * time.Millisecond, "1s jitter=0.25": 750 * time.Millisecond,
	} {
		p, err := ledger.ParseRetryPolicy(text)
		if err != nil {
			t.Fatal(err)
		}
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

// Text that is read is written so that it is read as the same again.
func FuzzParseRetryPolicy(f *testing.F) {
	for _, text := range []string{"exponential", "1m,5m,20m,... attempts=10 jitter=0.3", "0s max=1h", "exponential unit=1ms max=1h30m jitter=0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ledger.ParseRetryPolicy(text)
		if err != nil {
			return
		}
		again, err := ledger.ParseRetryPolicy(p.String())
		if err != nil {
			t.Fatalf("%q is written as %q, which is refused: %v", text, p, err)
		}
		if p.Limit() != again.Limit() || p.String() != again.String() {
			t.Fatalf("%q is written as %q, and read as %q", text, p, again)
		}
		for _, n := range []int{1, 2, 3, 99, 101} {
			for _, random := range []float64{0, 0.4} {
				if p.Delay(n, random) != again.Delay(n, random) {
					t.Fatalf("%q and %q differ after failure %d", p, again, n)
				}
			}
		}
	})
}

// A task's own policy travels in its meta, as text.
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
	if diff := cmp.Diff(json.RawMessage(`{"retry":"1m,5m"}`), history[0].Meta); diff != "" {
		t.Errorf("meta (-want +got):\n%s", diff)
	}
	meta, err := ledger.ParseMeta(history[0].Meta)
	if err != nil || meta.Retry != "1m,5m" {
		t.Errorf("read as %q, %v", meta.Retry, err)
	}
	for _, o := range []ledger.EnqueueOptions{
		{Retry: &ledger.RetryPolicy{Attempts: -1}}, {Meta: ledger.Meta{Retry: "now and then"}},
	} {
		var invalid *ledger.InvalidError
		if _, err := ledger.Enqueue(ctx, db, ledger.Key{Kind: "retry", BizID: "2"}, nil, &o); !errors.As(err, &invalid) || invalid.Field != "retry" {
			t.Errorf("%+v: %v, want an InvalidError for retry", o, err)
		}
	}
}
