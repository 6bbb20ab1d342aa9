package metrics

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/taskledger/taskledger/projector"
)

// values are the values of a scrape.
type values []prometheus.Metric

func (v *values) add(m *metric, value float64, labels ...string) {
	t := prometheus.GaugeValue
	if m.kind == counter {
		t = prometheus.CounterValue
	}
	*v = append(*v, prometheus.MustNewConstMetric(m.desc, t, value, labels...))
}

func (v *values) number(m *metric, n int, labels ...string) { v.add(m, float64(n), labels...) }

// seconds adds a duration. One that has not begun is 0.
func (v *values) seconds(m *metric, d time.Duration, labels ...string) {
	v.add(m, max(0, d).Seconds(), labels...)
}

func (v *values) bool(m *metric, is bool, labels ...string) {
	if is {
		v.add(m, 1, labels...)
		return
	}
	v.add(m, 0, labels...)
}

// boundaries are the buckets of a projector.Histogram whose ends are boundaries of the metrics. Bucket i ends at
// 2^(i/4) ms. From 1 ms to a minute each boundary is 1.4 times the previous one, and then 4 times, up to 4.7 hours.
var boundaries = func() (all []int) {
	for i := 0; i <= 64; i += 2 {
		all = append(all, i)
	}
	for i := 72; i <= 96; i += 8 {
		all = append(all, i)
	}
	return all
}()

// boundary returns the end of a bucket in seconds.
func boundary(bucket int) float64 { return math.Round(math.Exp2(float64(bucket)/4)*1000) / 1e6 }

// vec returns a histogram for each kind, with the same boundaries.
func (m *metric) vec() *prometheus.HistogramVec {
	all := make([]float64, len(boundaries))
	for i, b := range boundaries {
		all[i] = boundary(b)
	}
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.name, Help: m.help, Buckets: all}, m.labels)
}

// histogram adds a histogram of times.
func (v *values) histogram(m *metric, h projector.Histogram, labels ...string) {
	cumulative := make(map[float64]uint64, len(boundaries))
	n, done := int64(0), 0
	for _, b := range boundaries {
		for ; done < min(len(h), b+1); done++ {
			n += h[done]
		}
		cumulative[boundary(b)] = uint64(n)
	}
	sum := 0.0
	for i, in := range h {
		sum += float64(in) * middle(i) / 1000
	}
	*v = append(*v, prometheus.MustNewConstHistogram(m.desc, uint64(h.Count()), sum, cumulative, labels...))
}

// middle returns the time in ms for which the times in a bucket count.
func middle(bucket int) float64 {
	if bucket == 0 {
		return 0.5
	}
	return math.Exp2((float64(bucket) - 0.5) / 4)
}
