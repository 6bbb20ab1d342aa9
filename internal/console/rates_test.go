package console

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// The kept steps of a chart are those of the database while time goes on, by one step, by several, and by more than the
// chart has, and when the clock goes back. Events that are added to an old step are in the chart after as many
// pages as it has steps.
func TestRatesAreKept(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, ledgertest.Owner)
	const step, n = 15 * time.Minute, 8
	begin := time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)
	add := func(at time.Time, kind string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), `insert into taskledger.kind_stats
			(minute, kind, enqueued, started, succeeded, failed, dead, cancelled)
			values ($1::text::timestamptz, $2, 1, 2, 3, 4, 5, 6)`, at.Format(time.RFC3339), kind); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 300 {
		add(begin.Add(time.Duration(i*7)*time.Minute), []string{"a", "b", "c"}[i%3])
	}
	for name, kinds := range map[string][]ledger.Kind{"all kinds": nil, "two kinds": {"a", "c"}, "none": {"d"}} {
		var known knownRates
		read := func(last time.Time) []projector.KindStats {
			t.Helper()
			have, isWhole, err := known.read(t.Context(), db, last, step, n, kinds, time.Hour)
			if err != nil || !isWhole {
				t.Fatal(isWhole, err)
			}
			return have
		}
		want := func(last time.Time) []projector.KindStats {
			t.Helper()
			all, err := projector.ReadRates(t.Context(), db, last.Add(-(n-1)*step), last.Add(step), step, kinds...)
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		for _, hours := range []float64{5, 5, 5.25, 6.5, 9, 30, 29, 8} {
			last := begin.Add(time.Duration(hours * float64(time.Hour)))
			if diff := difference.OfContents(want(last), read(last)); diff != "" {
				t.Errorf("%s after %v hours (-want +have):\n%s", name, hours, diff)
			}
		}
		last := begin.Add(8 * time.Hour)
		add(last.Add(-5*step), "c")
		add(last, "a")
		newest := func(steps []projector.KindStats) []projector.KindStats { return steps[max(0, len(steps)-1):] }
		if diff := difference.OfContents(newest(want(last)), newest(read(last))); diff != "" {
			t.Errorf("%s: the newest step (-want +have):\n%s", name, diff)
		}
		for range n - 1 {
			read(last)
		}
		if diff := difference.OfContents(want(last), read(last)); diff != "" {
			t.Errorf("%s with a late event (-want +have):\n%s", name, diff)
		}
	}
}

// A chart whose steps take long is whole after several pages, and each begins with the newest steps.
func TestRatesThatTakeLong(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, ledgertest.Owner)
	const step, n = time.Hour, 3 * readSteps
	last := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	if _, err := db.Exec(t.Context(), `insert into taskledger.kind_hour
		(hour, kind, enqueued, started, succeeded, failed, dead, cancelled)
		select $1::text::timestamptz - i * interval '1 hour', 'a', 1, 1, 1, 0, 0, 0 from generate_series(0, 100) i`,
		last.Format(time.RFC3339)); err != nil {
		t.Fatal(err)
	}
	var hurried knownRates
	have, isWhole, err := hurried.read(t.Context(), db, last, step, n, nil, 0)
	if err != nil || len(have) != readSteps || isWhole || !have[readSteps-1].Minute.Equal(last) {
		t.Errorf("a page without time has %d steps: %v", len(have), err)
	}
	if have, isWhole, err = hurried.read(t.Context(), db, last, step, n, nil, time.Hour); err != nil || len(have) != n {
		t.Errorf("the next page has %d steps, and %v: %v", len(have), isWhole, err)
	}
}

// The steps of a limited number of charts are kept.
func TestRatesOfManyCallers(t *testing.T) {
	t.Parallel()
	var r keyed[ratesKey, knownRates]
	first := r.of(ratesKey{})
	if r.of(ratesKey{}) != first {
		t.Error("the steps of one chart are not kept")
	}
	for i := range 10 * maxKeys {
		r.of(ratesKey{caller: string(rune('a' + i))})
	}
	if len(r.known) > maxKeys {
		t.Errorf("the steps of %d charts are kept", len(r.known))
	}
}
