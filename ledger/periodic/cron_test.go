package periodic

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the rules are tested with the same database everywhere

	"github.com/taskledger/taskledger/internal/difference"
)

func mustParse(t testing.TB, expression, zone string) *calendar {
	t.Helper()
	z, err := loadZone(zone)
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseCron(expression, z)
	if err != nil {
		t.Fatalf("%q: %v", expression, err)
	}
	return c
}

// between returns the firings in (from, to].
func between(due recurrence, from, to time.Time) (found []time.Time) {
	for {
		firing, ok := due.next(from)
		if !ok || firing.After(to) {
			return found
		}
		found = append(found, firing)
		from = firing
	}
}

// The rules of the package comment hold where clocks were really changed.
func TestClockChanges(t *testing.T) {
	t.Parallel()
	const (
		newYork  = "America/New_York"    // an hour at 02:00
		berlin   = "Europe/Berlin"       // an hour at 02:00 and 03:00
		lordHowe = "Australia/Lord_Howe" // half an hour at 02:00
		apia     = "Pacific/Apia"        // went over the date line: no 30 December 2011
		saoPaulo = "America/Sao_Paulo"   // an hour at midnight: a day began at 01:00
		havana   = "America/Havana"      // back at 01:00: midnight came twice
	)
	for _, test := range []struct {
		name, cron, zone, from, to string
		want                       []string // as the wall clock shows them
	}{
		{
			name: "gap: named once, at its end", cron: "30 2 * * *", zone: newYork,
			from: "2026-03-07T12:00:00Z", to: "2026-03-10T12:00:00Z",
			want: []string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00", "2026-03-10T02:30:00-04:00"},
		},
		{
			name: "gap: several named are due once", cron: "*/15 2,3 * * *", zone: newYork,
			from: "2026-03-08T00:00:00Z", to: "2026-03-08T07:20:00Z",
			want: []string{"2026-03-08T03:00:00-04:00", "2026-03-08T03:15:00-04:00"},
		},
		{
			name: "gap: every hour skips it", cron: "30 * * * *", zone: newYork,
			from: "2026-03-08T05:00:00Z", to: "2026-03-08T08:00:00Z",
			want: []string{"2026-03-08T00:30:00-05:00", "2026-03-08T01:30:00-05:00", "2026-03-08T03:30:00-04:00"},
		},
		{
			name: "gap: the first time after it", cron: "0 * * * *", zone: newYork,
			from: "2026-03-08T05:30:00Z", to: "2026-03-08T08:00:00Z",
			want: []string{"2026-03-08T01:00:00-05:00", "2026-03-08T03:00:00-04:00", "2026-03-08T04:00:00-04:00"},
		},
		{
			name: "overlap: named once, the first time", cron: "30 1 * * *", zone: newYork,
			from: "2026-10-31T12:00:00Z", to: "2026-11-02T12:00:00Z",
			want: []string{"2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"},
		},
		{
			name: "overlap: not again in its second half", cron: "15,45 1 * * *", zone: newYork,
			from: "2026-11-01T06:20:00Z", to: "2026-11-02T06:30:00Z",
			want: []string{"2026-11-02T01:15:00-05:00"},
		},
		{
			name: "overlap: every hour both times", cron: "*/30 * * * *", zone: newYork,
			from: "2026-11-01T05:00:00Z", to: "2026-11-01T07:00:00Z",
			want: []string{
				"2026-11-01T01:30:00-04:00", "2026-11-01T01:00:00-05:00", "2026-11-01T01:30:00-05:00",
				"2026-11-01T02:00:00-05:00",
			},
		},
		{
			name: "gap", cron: "0 2 * * *", zone: berlin,
			from: "2026-03-28T12:00:00Z", to: "2026-03-30T12:00:00Z",
			want: []string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"},
		},
		{
			name: "overlap", cron: "0 2 * * *", zone: berlin,
			from: "2026-10-24T12:00:00Z", to: "2026-10-26T12:00:00Z",
			want: []string{"2026-10-25T02:00:00+02:00", "2026-10-26T02:00:00+01:00"},
		},
		{
			name: "overlap: the time at its end is not in it", cron: "0 3 * * *", zone: berlin,
			from: "2026-10-24T12:00:00Z", to: "2026-10-26T12:00:00Z",
			want: []string{"2026-10-25T03:00:00+01:00", "2026-10-26T03:00:00+01:00"},
		},
		{
			name: "half an hour's gap", cron: "15 2 * * *", zone: lordHowe,
			from: "2026-10-02T15:00:00Z", to: "2026-10-05T00:00:00Z",
			want: []string{"2026-10-03T02:15:00+10:30", "2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"},
		},
		{
			name: "half an hour's gap: every hour", cron: "15,45 * * * *", zone: lordHowe,
			from: "2026-10-03T15:00:00Z", to: "2026-10-03T16:30:00Z",
			want: []string{"2026-10-04T01:45:00+10:30", "2026-10-04T02:45:00+11:00", "2026-10-04T03:15:00+11:00"},
		},
		{
			name: "half an hour's overlap", cron: "45 1 * * *", zone: lordHowe,
			from: "2026-04-03T20:00:00Z", to: "2026-04-05T20:00:00Z",
			want: []string{"2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"},
		},
		{
			name: "half an hour's overlap: every hour", cron: "45 * * * *", zone: lordHowe,
			from: "2026-04-04T14:00:00Z", to: "2026-04-04T16:30:00Z",
			want: []string{"2026-04-05T01:45:00+11:00", "2026-04-05T01:45:00+10:30", "2026-04-05T02:45:00+10:30"},
		},
		{
			name: "a skipped day: named once, when the next begins", cron: "0 9 * * *", zone: apia,
			from: "2011-12-28T20:00:00Z", to: "2012-01-01T00:00:00Z",
			want: []string{
				"2011-12-29T09:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T09:00:00+14:00",
				"2012-01-01T09:00:00+14:00",
			},
		},
		{
			name: "a skipped day: every hour skips it", cron: "0 * * * *", zone: apia,
			from: "2011-12-30T08:30:00Z", to: "2011-12-30T11:00:00Z",
			want: []string{"2011-12-29T23:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T01:00:00+14:00"},
		},
		{
			name: "a skipped midnight", cron: "0 0 * * *", zone: saoPaulo,
			from: "2018-11-03T12:00:00Z", to: "2018-11-05T12:00:00Z",
			want: []string{"2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"},
		},
		{
			name: "two midnights", cron: "0 0 * * *", zone: havana,
			from: "2026-10-31T12:00:00Z", to: "2026-11-02T12:00:00Z",
			want: []string{"2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00"},
		},
		{
			name: "the far future has rules too", cron: "30 2 * * *", zone: newYork,
			from: "2199-03-09T12:00:00Z", to: "2199-03-11T12:00:00Z",
			want: []string{"2199-03-10T03:00:00-04:00", "2199-03-11T02:30:00-04:00"},
		},
	} {
		t.Run(test.zone+" "+test.name, func(t *testing.T) {
			c := mustParse(t, test.cron, test.zone)
			got := []string{}
			for _, firing := range between(c, at(t, test.from), at(t, test.to)) {
				got = append(got, firing.In(c.zone).Format(time.RFC3339))
			}
			if diff := difference.Of(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The firings equal those of a simulated clock that is read every minute.
func TestFiringsMatchAWatchedClock(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(4, 2))
	for _, change := range []string{
		"America/New_York 2026-03-08T07:00:00Z", "America/New_York 2026-11-01T06:00:00Z",
		"Australia/Lord_Howe 2026-10-03T15:30:00Z", "Australia/Lord_Howe 2026-04-04T15:00:00Z",
		"Pacific/Apia 2011-12-30T10:00:00Z", "Asia/Kathmandu 1985-12-31T18:30:00Z",
		"America/Havana 2026-11-01T05:00:00Z", "America/Caracas 2007-12-09T07:00:00Z",
		"Africa/Casablanca 2026-02-15T02:00:00Z",
	} {
		zone, when, _ := strings.Cut(change, " ")
		from, to := at(t, when).Add(-30*time.Hour), at(t, when).Add(30*time.Hour)
		for range 30 {
			minutes, hours := pick(random, 60, 4), pick(random, 24, 1+random.IntN(23))
			if random.IntN(4) == 0 {
				hours = pick(random, 24, 24)
			}
			c := mustParse(t, fmt.Sprintf("%s %s * * *", joined(minutes), joined(hours)), zone)
			got, want := texts(between(c, from, to)), texts(watch(c.zone, minutes, hours, from, to))
			if diff := difference.Of(want, got); diff != "" {
				t.Fatalf("%s: minutes %v, hours %v (-want +got):\n%s", change, minutes, hours, diff)
			}
		}
	}
}

// watch reads the clock of a zone every minute, and applies the rules to each wall time.
func watch(zone *time.Location, minutes, hours []int, from, to time.Time) (due []time.Time) {
	everyHour := len(hours) == 24
	latest := wallOf(from.In(zone)).Add(-30 * time.Hour) // the latest wall time so far
	for now := from.Add(-30 * time.Hour); !now.After(to); now = now.Add(time.Minute) {
		wall := wallOf(now.In(zone))
		fires := everyHour && matches(wall, minutes, hours)
		for latest.Before(wall) { // several minutes at a gap, none in an overlap
			latest = latest.Add(time.Minute)
			fires = fires || !everyHour && matches(latest, minutes, hours)
		}
		if fires && now.After(from) {
			due = append(due, now)
		}
	}
	return due
}

func matches(wall time.Time, minutes, hours []int) bool {
	return slices.Contains(minutes, wall.Minute()) && slices.Contains(hours, wall.Hour())
}

// pick returns n different numbers below limit.
func pick(random *rand.Rand, limit, n int) []int {
	return random.Perm(limit)[:n]
}

func joined(numbers []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]")
}

func TestCron(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ cron, from, want string }{
		{cron: "0 0 29 2 *", from: "2096-03-01T00:00:00Z", want: "2104-02-29T00:00:00Z"},
		{cron: "0 0 * 2 MON#5", from: "2072-03-01T00:00:00Z", want: "2112-02-29T00:00:00Z"},
		{cron: "0 9 L * *", from: "2026-02-01T00:00:00Z", want: "2026-02-28T09:00:00Z"},
		{cron: "0 9 LW * *", from: "2026-05-01T00:00:00Z", want: "2026-05-29T09:00:00Z"},
		// A day matches if one of the two fields matches.
		{cron: "0 0 13 * FRI", from: "2026-11-01T00:00:00Z", want: "2026-11-06T00:00:00Z"},
		{cron: "0 0 * * 7", from: "2026-11-21T00:00:00Z", want: "2026-11-22T00:00:00Z"},
		{cron: "@daily", from: "2026-11-21T00:00:00Z", want: "2026-11-22T00:00:00Z"},
		{cron: "@hourly", from: "2026-11-21T00:00:00Z", want: "2026-11-21T01:00:00Z"},
		{cron: "  5   4  *  *  * ", from: "2026-11-21T04:04:59.999999Z", want: "2026-11-21T04:05:00Z"},
	} {
		firing, _ := mustParse(t, test.cron, "UTC").next(at(t, test.from))
		if got := instant(firing); got != test.want {
			t.Errorf("%s after %s: %s, want %s", test.cron, test.from, got, test.want)
		}
	}
}

// Invalid and hostile expressions are refused at once: the work of an expression is bounded.
func TestHostileCron(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "*", "* * * *", "* * * * * *", "* * * * * * *", "60 * * * *", "-1 * * * *",
		"* 24 * * *", "* * 0 * *", "* * 32 * *",
		"* * * 13 *", "* * * * 8", "*/0 * * * *", "*/-1 * * * *",
		"*/99999999999999999999 * * * *", "1-99999999999 * * * *", "18446744073709551615 * * * *",
		"1-2-3 * * * *", "1/2/3 * * * *", ", , , , ,",
		", * * * *", "* , * * *", "* * , * *", "* * * , *", "* * * * ,",
		"0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 L-30 2 *", "0 0 31W 2 *",
		"@every 1ns", "@every 1h", "@never", "@reboot",
		"TZ=UTC * * * * *", "CRON_TZ=../../etc/passwd * * * * *", "H * * * *", "\x00 * * * *", "* * * * *\n* * * * *",
		strings.Repeat("*", 1<<20), strings.Repeat("0,", 1<<19) + "0 * * * *",
		strings.Repeat(" ", maxCron) + "* * * * *",
	} {
		if c, err := parseCron(text, time.UTC); err == nil {
			next, _ := c.next(time.Unix(0, 0))
			t.Errorf("%.60q was accepted, and is due at %s", text, next)
		}
	}
	for _, zone := range []string{
		"Local", "Europe/Nowhere", "../../etc/passwd", "/etc/passwd", "\x00", strings.Repeat("a", 1<<20),
	} {
		if _, err := loadZone(zone); err == nil {
			t.Errorf("zone %.40q was accepted", zone)
		}
	}
}

// The longest search there is: a rare firing, from just after the previous one.
func BenchmarkNextSeldom(b *testing.B) {
	c := mustParse(b, "0 0 * 2 MON#5", "America/New_York")
	from := at(b, "2072-03-01T12:00:00Z")
	for b.Loop() {
		if _, ok := c.next(from); !ok {
			b.Fatal("not found")
		}
	}
}

func FuzzCron(f *testing.F) {
	for _, seed := range []string{
		"*/10 2-4 * * MON-FRI", "0 0 L * *", "30 2 29 2 *", "@weekly", "0 0 15W * FRI#3",
		"59-1 22-2 31-1 DEC-JAN FRI-MON",
	} {
		f.Add(seed, int64(1_772_953_200), uint8(0))
	}
	zones := []string{"UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"}
	f.Fuzz(func(t *testing.T, text string, seconds int64, zone uint8) {
		location, err := loadZone(zones[int(zone)%len(zones)])
		if err != nil {
			t.Fatal(err)
		}
		c, err := parseCron(text, location)
		if err != nil {
			return
		}
		from := time.Unix(seconds%4_000_000_000, 0)
		last := from
		for range 10 {
			firing, ok := c.next(last)
			if !ok {
				t.Fatalf("%q has no firing after %s", text, last)
			}
			if !firing.After(last) {
				t.Fatalf("%q: %s is not after %s", text, firing, last)
			}
			if again, _ := c.next(firing.Add(-time.Microsecond)); !again.Equal(firing) {
				t.Fatalf("%q: %s, and from just before it %s", text, firing, again)
			}
			last = firing
		}
	})
}

// The fault of an expression names the field and its values, and a range of numbers does not go round.
func TestCronFaults(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ cron, want string }{
		{cron: "61 * * * *", want: `must have a valid minute, of 0 to 59, got "61"`},
		{cron: "* 9-25 * * *", want: `must have a valid hour, of 0 to 23, got "9-25"`},
		{cron: "* * x * *", want: `must have a valid day of month, of 1 to 31, got "x"`},
		{cron: "* * * H *", want: `must have a valid month, of 1 to 12 or JAN to DEC, got "H"`},
		{cron: "* * * * */99999999999999999999", want: `must have a valid day of week`},
		{cron: "H * * * *", want: `must have a valid minute`},
		{cron: "* * * *", want: "must be five fields"},
		{cron: "0 * * * * *", want: "must be five fields"},
		{cron: "@noon", want: "must be five fields"},
		{cron: "", want: "must be five fields"},
		{cron: "5-1 * * * *", want: "must not contain the range 5-1, which ends before it begins"},
		{cron: "0 1,22-2/2 * * *", want: "must not contain the range 22-2"},
		{cron: "0 0 * * 5-1", want: "must not contain the range 5-1"},
	} {
		_, err := parseCron(tc.cron, time.UTC)
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) || strings.Contains(err.Error(), "strconv") {
			t.Errorf("%q: %v, want %s", tc.cron, err, tc.want)
		}
	}
	for _, text := range []string{"1-5,7-9/2 22-23,0-2 1-1 1-12 1-5", "0 0 * * FRI-MON", "0 0 L-3 NOV-FEB *"} {
		mustParse(t, text, "UTC")
	}
}
