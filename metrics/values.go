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
	if m.Type == Counter {
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

// Bucket i of a projector.Histogram ends at 2^(i/4) ms. Each boundary here is 4 times that before it, which is one of
// those: 1 ms, 4 ms, 16 ms and so on, to 4.7 hours.
const (
	bucketsPerBoundary = 8
	boundaries         = 13
)

// histogram adds a histogram of times.
func (v *values) histogram(m *metric, h projector.Histogram, labels ...string) {
	cumulative := make(map[float64]uint64, boundaries)
	for b := range boundaries {
		n := int64(0)
		for _, in := range h[:min(len(h), b*bucketsPerBoundary+1)] {
			n += in
		}
		cumulative[math.Exp2(float64(b)*bucketsPerBoundary/4)/1000] = uint64(n)
	}
	sum := 0.0
	for i, in := range h {
		sum += float64(in) * middle(i) / 1000
	}
	*v = append(*v, prometheus.MustNewConstHistogram(m.desc, uint64(h.Count()), sum, cumulative, labels...))
}

// middle returns the time in ms by which those in a bucket count.
func middle(bucket int) float64 {
	if bucket == 0 {
		return 0.5
	}
	return math.Exp2((float64(bucket) - 0.5) / 4)
}
