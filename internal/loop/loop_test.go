package loop_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
)

func TestSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if err := loop.Sleep(t.Context(), time.Hour); err != nil || time.Since(begun) != time.Hour {
			t.Errorf("slept %s: %v", time.Since(begun), err)
		}
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(cause) })
		begun = time.Now()
		if err := loop.Sleep(ctx, time.Hour); !errors.Is(err, cause) || time.Since(begun) != time.Minute {
			t.Errorf("slept %s: %v", time.Since(begun), err)
		}
		if err := loop.Sleep(ctx, -1); !errors.Is(err, cause) {
			t.Errorf("slept without a duration: %v", err)
		}
	})
}

// Loops that begin at different moments end their long sleeps together, and none sleeps longer than it would.
func TestAlign(t *testing.T) {
	t.Parallel()
	if d := loop.Align(249 * time.Millisecond); d != 249*time.Millisecond {
		t.Errorf("a short sleep of %s", d)
	}
	synctest.Test(t, func(t *testing.T) {
		const every = 250 * time.Millisecond
		time.Sleep(loop.Align(every)) // to a common moment
		for _, late := range []time.Duration{0, time.Millisecond, 200 * time.Millisecond} {
			begin := time.Now()
			time.Sleep(late)
			for _, d := range []time.Duration{every, 4 * every} {
				if got := loop.Align(d); got != d-late {
					t.Errorf("a sleep of %s, %s late, is one of %s", d, late, got)
				}
			}
			time.Sleep(time.Until(begin.Add(every)))
		}
	})
}

// A pause is a multiple of the cost before it, and never more than its bound.
func TestRest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ cost, want time.Duration }{
		{cost: 0, want: 0},
		{cost: 10 * time.Millisecond, want: 190 * time.Millisecond},
		{cost: 6 * time.Second, want: time.Second},
		{cost: 1 << 62, want: time.Second},
	} {
		if got := loop.Rest(test.cost, 20, time.Second); got != test.want {
			t.Errorf("after %s a rest of %s, want %s", test.cost, got, test.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := loop.Backoff{Min: 10, Max: 60, Exact: true}
	var got []time.Duration
	for range 4 {
		got = append(got, b.Next())
	}
	b.Reset()
	got = append(got, b.Next())
	if want := []time.Duration{10, 20, 40, 60, 10}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	var random loop.Backoff
	seen := make(map[time.Duration]bool)
	for range 100 {
		d := random.Next()
		if d < 37*time.Millisecond || d > 6250*time.Millisecond {
			t.Fatalf("%s is out of bounds", d)
		}
		seen[d] = true
	}
	if len(seen) < 50 {
		t.Errorf("only %d different delays", len(seen))
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		outage, final := errors.New("outage"), errors.New("final")
		var reported []time.Duration
		script := []error{outage, outage, nil, outage, final}
		var began []time.Duration
		start := time.Now()
		steps := loop.Steps{
			Step: func(context.Context) (time.Duration, error) {
				began = append(began, time.Since(start))
				err := script[0]
				script = script[1:]
				return time.Second, err
			},
			Stop: func(err error) error {
				if errors.Is(err, final) {
					return err
				}
				return nil
			},
			Failed: func(_ context.Context, err error, in time.Duration) {
				if !errors.Is(err, outage) {
					t.Errorf("reported %v", err)
				}
				reported = append(reported, in)
			},
			Backoff: loop.Backoff{Min: time.Minute, Max: time.Hour, Exact: true},
		}
		if err := steps.Run(ctx); !errors.Is(err, final) {
			t.Errorf("Run returned %v", err)
		}
		m := time.Minute
		if want := []time.Duration{m, 2 * m, m}; !slices.Equal(reported, want) {
			t.Errorf("reported %v, want %v", reported, want)
		}
		if want := []time.Duration{0, m, 3 * m, 3*m + time.Second, 4*m + time.Second}; !slices.Equal(began, want) {
			t.Errorf("steps began after %v, want %v", began, want)
		}

		// An error that a step returns after ctx is done is not an error of the service.
		steps.Step = func(context.Context) (time.Duration, error) { cancel(); return 0, final }
		if err := steps.Run(ctx); err != nil {
			t.Errorf("stopped with %v", err)
		}
	})
}

// A service that has ended is started again, and the same error is reported once.
func TestKeep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		script := []error{errors.New("a"), errors.New("a"), nil, errors.New("b"), errors.New("a")}
		var reported []error
		begin := time.Now()
		loop.Keep(ctx, func(context.Context) error {
			if len(script) == 1 {
				cancel()
			}
			err := script[0]
			script = script[1:]
			return err
		}, func(err error) { reported = append(reported, err) })
		if len(reported) != 3 || reported[0].Error() != "a" || reported[1] != nil || reported[2].Error() != "b" {
			t.Errorf("reported %v", reported)
		}
		if d := time.Since(begin); d != 20*time.Second {
			t.Errorf("five runs took %s", d)
		}
	})
}
