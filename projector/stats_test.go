package projector_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// The statistics of a few tasks, whose events have given times.
func TestKindStats(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	ledgertest.ExecAsOwner(t, pool, `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, recorded_at, data)
		select version, attempt, 0, type::taskledger.event_type, 'a', biz_id, '2026-01-01T10:00:00Z'::timestamptz + at,
		       data::json
		  from (values
		    (1, 0, 'enqueued',  'quick', interval '1 s',    '{"duration_ms":9}'),
		    (2, 1, 'succeeded', 'quick', interval '1.5 s',
		     '{"worker":"w","duration_ms":300,"result":{"duration_ms":1}}'),
		    (1, 0, 'enqueued',  'slow',  interval '2 s',    null),
		    (2, 1, 'started',   'slow',  interval '12 s',   null),
		    (3, 1, 'progressed', 'slow', interval '30 s',   null),
		    (4, 1, 'failed',    'slow',  interval '62 s',   '{"duration_ms" : 50000.5}'),
		    (5, 1, 'released',  'slow',  interval '70 s',   null),
		    (6, 2, 'failed',    'slow',  interval '80 s',   '{"duration_ms":4000}'),
		    (7, 2, 'buried',    'slow',  interval '80 s',   '{"duration_ms":4000}'),
		    (1, 0, 'enqueued',  'lost',  interval '10 s',   null),
		    (2, 1, 'started',   'lost',  interval '14 s',   null),
		    (3, 2, 'started',   'lost',  interval '55 s',   null),
		    (1, 0, 'enqueued',  'noted', interval '20 s',   null),
		    (2, 1, 'started',   'noted', interval '21.2 s', '{"duration_ms":1000}'),
		    (1, 0, 'enqueued',  'told',  interval '20 s',   null),
		    (2, 1, 'progressed', 'told', interval '21 s',   '{"duration_ms":800,"progress":{"duration_ms":1}}'),
		    (1, 0, 'enqueued',  'plain', interval '20 s',   null),
		    (2, 1, 'progressed', 'plain', interval '20.2 s', '{"progress":{"duration_ms":200}}'),
		    (1, 0, 'scheduled', 'none',  interval '3 s',    null),
		    (2, 0, 'cancelled', 'none',  interval '3 s',    null)) e(version, attempt, type, biz_id, at, data)`)
	project(t, pool)
	from := time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
	have, err := projector.ReadKindStats(t.Context(), pool, "a", from, from.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	want := []projector.KindStats{
		{Kind: "a", Minute: from, Enqueued: 7, Started: 7, Succeeded: 1, Cancelled: 1,
			Waiting: histogram(200*time.Millisecond, 10*time.Second, 4*time.Second, 200*time.Millisecond,
				200*time.Millisecond, 200*time.Millisecond),
			Running: histogram(300 * time.Millisecond)},
		{Kind: "a", Minute: from.Add(time.Minute), Started: 1, Failed: 2, Dead: 1,
			Waiting: histogram(6 * time.Second), Running: histogram(4 * time.Second)},
	}
	if diff := difference.Of(want, have); diff != "" {
		t.Errorf("statistics (-want +have):\n%s", diff)
	}
	before, after := from.Add(-time.Hour), from.Add(time.Hour)
	hours, err := projector.ReadRates(t.Context(), pool, before, after, time.Hour, "a", "none")
	hour := projector.KindStats{Kind: "a", Minute: from, Enqueued: 7, Started: 8, Succeeded: 1, Failed: 2, Dead: 1,
		Cancelled: 1}
	if diff := difference.Of([]projector.KindStats{hour}, hours); err != nil || diff != "" {
		t.Errorf("statistics by hour: %v (-want +have):\n%s", err, diff)
	}
	check(t, pool)
	rebuildTasks(t, pool)
	check(t, pool)
	again, err := projector.ReadKindStats(t.Context(), pool, "a", from, from.Add(time.Hour))
	if diff := difference.Of(want, again); diff != "" || err != nil {
		t.Errorf("statistics after a rebuild: %v (-want +have):\n%s", err, diff)
	}
}

// histogram returns the histogram of some durations.
func histogram(all ...time.Duration) (h projector.Histogram) {
	for _, d := range all {
		h = h.Merge(projector.HistogramOf(d))
	}
	return h
}

// Rows of a minute are merged once it has passed, and nothing is lost.
func TestStatsAreMerged(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	for minute := range 4 {
		ledgertest.ExecAsOwner(t, pool, fmt.Sprintf(`
			insert into taskledger.event (version, attempt, shard, type, kind, biz_id, recorded_at, data)
			select v, v - 1, 0, (array['enqueued', 'succeeded'])[v]::taskledger.event_type, 'k' || i %% 3, '%d-' || i,
			       '2026-01-01T10:%02d:00Z'::timestamptz + v * i * interval '10 ms', '{"duration_ms":10}'
			  from generate_series(1, 100) i, generate_series(1, 2) v`, minute, minute))
	}
	p, err := projector.New(projector.Config{DB: pool, PageSize: 30})
	if err != nil {
		t.Fatal(err)
	}
	projector.ApplyAll(t, p, pool)
	var rows, merged int
	err = pool.QueryRow(t.Context(), `select count(*), count(*) filter (where minute < '2026-01-01T10:02:00Z')
		from taskledger.kind_stats`).Scan(&rows, &merged)
	if err != nil || merged != 2*3 || rows <= merged+2*3 {
		t.Errorf("%d rows, %d of merged minutes, %v", rows, merged, err)
	}
	// The newest minute of the hour is not merged yet: its pages have rows of their own.
	var byHour int
	err = pool.QueryRow(t.Context(), "select count(*) from taskledger.kind_hour").Scan(&byHour)
	if err != nil || byHour >= rows-merged {
		t.Errorf("%d rows by hour, %v", byHour, err)
	}
	hour := time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
	for _, kinds := range [][]ledger.Kind{nil, {"k0", "k2"}} {
		var have, want []projector.KindStats
		for step, all := range map[time.Duration]*[]projector.KindStats{time.Hour: &have, time.Minute: &want} {
			*all, err = projector.ReadRates(t.Context(), pool, hour, hour.Add(time.Hour), step, kinds...)
			if err != nil {
				t.Fatal(err)
			}
		}
		sums := map[ledger.Kind]*projector.KindStats{}
		for _, s := range want {
			if sums[s.Kind] == nil {
				sums[s.Kind] = &projector.KindStats{}
			}
			sums[s.Kind].Add(s)
		}
		if len(have) != max(1, len(kinds)) || len(have) != len(sums) {
			t.Errorf("%v: %+v, want %+v", kinds, have, sums)
		}
		for i, s := range have {
			sum := sums[s.Kind]
			if len(kinds) > 0 && s.Kind != kinds[i] || sum == nil || !s.Minute.Equal(hour) || s.Enqueued == 0 ||
				s.Enqueued != sum.Enqueued || s.Succeeded != sum.Succeeded {
				t.Errorf("%v: %+v, want %+v", kinds, s, sum)
			}
		}
	}
	check(t, pool)
}

func TestHistogram(t *testing.T) {
	t.Parallel()
	var h projector.Histogram
	if h.Quantile(0.5) != 0 || h.Count() != 0 {
		t.Error("an empty histogram has a quantile")
	}
	for i := range 1000 {
		h = h.Merge(projector.HistogramOf(time.Duration(i+1) * time.Millisecond))
	}
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 1} {
		exact := time.Duration(max(1, 1000*q)) * time.Millisecond
		if have := h.Quantile(q); have < exact || float64(have) > 1.2*float64(exact) {
			t.Errorf("quantile %v: %s, want about %s", q, have, exact)
		}
	}
	for _, d := range []time.Duration{-time.Hour, 0, 1 << 62} {
		if h := projector.HistogramOf(d); h.Count() != 1 || len(h) > 130 {
			t.Errorf("%s: %v", d, h)
		}
	}
}

// Odd data of events counts nothing, and stops nothing.
func TestStatsOfOddData(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	for i, data := range []string{
		`{"duration_ms":-1}`, `{"duration_ms":1e300}`, `{"duration_ms":"x"}`, `{"duration_ms":`, `[]`,
		`"\"duration_ms\":5"`, `{"duration_ms":99999999999999999999999}`, `{"duration_ms":1.2.3}`,
	} {
		key := ledger.Key{Kind: "a", BizID: ledger.BizID(fmt.Sprint(i))}
		if _, err := ledger.Enqueue(t.Context(), pool, key, nil, nil); err != nil {
			t.Fatal(err)
		}
		if !json.Valid([]byte(data)) {
			data = `{"result":"` + `\"duration_ms\":"}`
		}
		end := ledger.AppendRequest{Key: key, Expected: 1, Type: ledger.EventSucceeded, Data: []byte(data)}
		if _, err := ledger.Append(t.Context(), pool, end); err != nil {
			t.Fatal(err)
		}
	}
	project(t, pool)
	check(t, pool)
	stats, err := projector.ReadKindStats(t.Context(), pool, "a", time.Time{}, time.Now().Add(time.Hour))
	if err != nil || len(stats) == 0 {
		t.Fatalf("%v, %v", stats, err)
	}
	var running int64
	for _, s := range stats {
		running += s.Running.Count()
	}
	if running != 1 { // 1e300 begins with 1
		t.Errorf("%d running times", running)
	}
}
