package periodic

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
)

// at parses a time.
func at(t testing.TB, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return v.UTC()
}

func texts(times []time.Time) []string {
	s := []string{}
	for _, t := range times {
		s = append(s, instant(t))
	}
	return s
}

func TestPlan(t *testing.T) {
	t.Parallel()
	type want struct {
		Fire     []string
		Count    int
		More     bool
		From, To string
		Next     string
	}
	hourly := Schedule{Cron: "0 * * * *"}
	everySecond := Schedule{Every: time.Second}
	with := func(s Schedule, m Missed, limit int) Schedule {
		s.Missed, s.MissedLimit = m, limit
		return s
	}
	for _, test := range []struct {
		name       string
		schedule   Schedule
		first, now string
		want       want
	}{
		{
			name: "due now", schedule: hourly,
			first: "2026-01-01T10:00:00Z", now: "2026-01-01T10:00:00Z",
			want: want{Fire: []string{"2026-01-01T10:00:00Z"}, Next: "2026-01-01T11:00:00Z"},
		},
		{
			name: "one fires, however late", schedule: hourly,
			first: "2026-01-01T10:00:00Z", now: "2026-01-01T10:59:59.999Z",
			want: want{Fire: []string{"2026-01-01T10:00:00Z"}, Next: "2026-01-01T11:00:00Z"},
		},
		{
			name: "one of three", schedule: hourly,
			first: "2026-01-01T10:00:00Z", now: "2026-01-01T12:30:00Z",
			want: want{
				Fire: []string{"2026-01-01T12:00:00Z"}, Count: 2,
				From: "2026-01-01T10:00:00Z", To: "2026-01-01T11:00:00Z", Next: "2026-01-01T13:00:00Z",
			},
		},
		{
			name: "skip, not late", schedule: with(hourly, MissedSkip, 0),
			first: "2026-01-01T10:00:00Z", now: "2026-01-01T12:01:00Z",
			want: want{
				Fire: []string{"2026-01-01T12:00:00Z"}, Count: 2,
				From: "2026-01-01T10:00:00Z", To: "2026-01-01T11:00:00Z", Next: "2026-01-01T13:00:00Z",
			},
		},
		{
			name: "skip, late", schedule: with(hourly, MissedSkip, 0),
			first: "2026-01-01T10:00:00Z", now: "2026-01-01T12:01:01Z",
			want: want{
				Fire: []string{}, Count: 3,
				From: "2026-01-01T10:00:00Z", To: "2026-01-01T12:00:00Z", Next: "2026-01-01T13:00:00Z",
			},
		},
		{
			name: "all", schedule: with(hourly, MissedAll, 3),
			first: "2026-01-01T10:00:00Z", now: "2026-01-01T12:30:00Z",
			want: want{
				Fire: []string{"2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z", "2026-01-01T12:00:00Z"},
				Next: "2026-01-01T13:00:00Z",
			},
		},
		{
			name: "all, bounded", schedule: with(hourly, MissedAll, 2),
			first: "2026-01-01T08:00:00Z", now: "2026-01-01T12:30:00Z",
			want: want{
				Fire: []string{"2026-01-01T11:00:00Z", "2026-01-01T12:00:00Z"}, Count: 3,
				From: "2026-01-01T08:00:00Z", To: "2026-01-01T10:00:00Z", Next: "2026-01-01T13:00:00Z",
			},
		},
		{
			name: "many", schedule: with(everySecond, MissedAll, 2),
			first: "2026-01-01T00:00:00Z", now: "2026-01-02T00:00:00.5Z",
			want: want{
				Fire: []string{"2026-01-01T23:59:59Z", "2026-01-02T00:00:00Z"}, Count: 24*60*60 - 1,
				From: "2026-01-01T00:00:00Z", To: "2026-01-01T23:59:58Z", Next: "2026-01-02T00:00:01Z",
			},
		},
		{
			name: "too many to count", schedule: everySecond,
			first: "1926-01-01T00:00:00Z", now: "2026-01-02T00:00:00.5Z",
			want: want{
				Fire: []string{"2026-01-02T00:00:00Z"}, Count: maxWalk, More: true,
				From: "1926-01-01T00:00:00Z", To: "2026-01-01T23:59:59Z", Next: "2026-01-02T00:00:01Z",
			},
		},
		{
			name: "rare days with many firings", schedule: Schedule{Cron: "* * * 2 *"},
			first: "1990-02-01T00:00:00Z", now: "2026-01-01T00:00:00Z",
			want: want{
				Fire: []string{"2025-02-28T23:59:00Z"}, Count: maxWalk, More: true,
				From: "1990-02-01T00:00:00Z", To: "2025-02-28T23:58:00Z", Next: "2026-02-01T00:00:00Z",
			},
		},
		{
			name: "a fixed delay is never missed", schedule: Schedule{FixedDelay: time.Hour},
			first: "2026-01-01T10:00:00Z", now: "2027-01-01T00:00:00Z",
			want: want{Fire: []string{"2026-01-01T10:00:00Z"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := test.schedule
			s.Name, s.Kind = "s", "k"
			s = s.withDefaults()
			due, faults := s.compile()
			if len(faults) > 0 {
				t.Fatal(faults)
			}
			p := planFor(s, due, at(t, test.first), at(t, test.now))
			got := want{
				Fire: texts(p.fire), Count: p.passed.count, More: p.passed.more,
				From: instant(p.passed.from), To: instant(p.passed.to), Next: instant(p.next),
			}
			if diff := difference.Of(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
