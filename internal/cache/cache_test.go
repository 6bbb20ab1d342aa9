package cache_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskledger/taskledger/internal/cache"
)

// source is what a value is read from. Each read takes a second.
type source struct {
	reads   int
	isLarge bool
	err     error
}

func (s *source) read(context.Context) (int, bool, error) {
	s.reads++
	n, err := s.reads, s.err
	time.Sleep(time.Second)
	return n, s.isLarge, err
}

// A small value is read for each call.
func TestSmallValue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, v := source{}, cache.Value[int]{}
		for want := 1; want < 4; want++ {
			if n, err := v.Get(t.Context(), s.read); n != want || err != nil {
				t.Errorf("%d, want %d: %v", n, want, err)
			}
		}
	})
}

// A large value is read once for the first calls, also if their contexts end before. Later calls do not wait: it is
// read again beside them, during a twentieth of the time. An error of a later read leaves the value as it is.
func TestLargeValue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, v := source{isLarge: true}, cache.Value[int]{}
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := v.Get(short, s.read); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call without time returns %v", err)
		}
		get := func(want int) {
			t.Helper()
			if n, err := v.Get(t.Context(), s.read); n != want || err != nil {
				t.Errorf("%d, want %d: %v", n, want, err)
			}
		}
		get(1)
		begun := time.Now()
		for range 10_000 {
			get(s.reads)
			time.Sleep(100 * time.Millisecond)
			if synctest.Wait(); s.reads > 1 {
				break
			}
		}
		if waited := time.Since(begun); waited < 19*time.Second || waited > 20*time.Second {
			t.Errorf("it was read again after %s", waited)
		}
		begun = time.Now()
		get(1)
		if waited := time.Since(begun); waited > 0 {
			t.Errorf("a call waits %s", waited)
		}
		time.Sleep(30 * time.Second)
		s.err = errors.New("away")
		get(2) // the second one is there, and the third one begins
		time.Sleep(2 * time.Second)
		get(2)
	})
}

// An error of the first read is returned, and the next call reads.
func TestFirstReadFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, v := source{isLarge: true, err: errors.New("away")}, cache.Value[int]{}
		if _, err := v.Get(t.Context(), s.read); !errors.Is(err, s.err) {
			t.Error(err)
		}
		s.err = nil
		if n, err := v.Get(t.Context(), s.read); n != 2 || err != nil {
			t.Error(n, err)
		}
	})
}
