package loglimit_test

import (
	"bytes"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/loglimit"
)

// Of many equal lines, the logger writes the first at once and one every 10 s, with its own time. Their numbers add up
// to all lines, and no line is logged after Close.
func TestWarn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log,
			&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				switch a.Key {
				case slog.TimeKey:
					return slog.String("at", a.Value.Time().Sub(begun).String())
				case slog.LevelKey:
					return slog.Attr{}
				}
				return a
			}}))
		one, other := logger.With("kind", "one"), logger.With("kind", "other")
		l := loglimit.New()
		for i := range 250 { // 25 s
			l.Warn(one, "away", "task", i)
			if i == 100 {
				l.Warn(other, "away", "task", i)
				l.Warn(one, "gone", "task", i)
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		l.Warn(one, "away", "task", "later")
		time.Sleep(time.Minute)
		synctest.Wait()
		want := `at=0s msg=away kind=one task=0
at=9.9s msg=away kind=one task=99 times=99
at=10s msg=away kind=other task=100
at=10s msg=gone kind=one task=100
at=19.9s msg=away kind=one task=199 times=100
at=24.9s msg=away kind=one task=249 times=50
at=1m25s msg=away kind=one task=later
`
		if diff := difference.Of(want, log.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}

		log.Reset()
		l.Warn(one, "away", "task", 1)
		l.Warn(one, "away", "task", 2)
		l.Close()
		l.Warn(one, "away", "task", 3)
		time.Sleep(time.Minute)
		synctest.Wait()
		want = "at=2m25s msg=away kind=one task=1\n" +
			"at=2m25s msg=away kind=one task=2 times=1\nat=2m25s msg=away kind=one task=3\n"
		if diff := difference.Of(want, log.String()); diff != "" {
			t.Errorf("ended (-want +got):\n%s", diff)
		}
	})
}
