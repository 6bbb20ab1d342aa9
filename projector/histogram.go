package projector

import (
	"math"
	"time"
)

// Histogram counts durations in buckets, each a fifth wider than the previous one. The first bucket counts durations
// below 1 ms, bucket i (from 1) durations from 2^((i-1)/4) to 2^(i/4) ms. Histograms are merged by [Histogram.Merge].
// Missing buckets at the end are 0. A nil Histogram is empty.
type Histogram []int64

const (
	bucketsPerDoubling = 4
	// maxBucket counts the longest durations, from 49 days on.
	maxBucket = 32*bucketsPerDoubling + 1
)

// bucket returns the bucket of a duration; a negative one is in the first.
func bucket(d time.Duration) int {
	ms := float64(d) / float64(time.Millisecond)
	if ms < 1 {
		return 0
	}
	return min(int(math.Floor(math.Log2(ms)*bucketsPerDoubling))+1, maxBucket)
}

// add returns h with one more duration.
func (h Histogram) add(d time.Duration) Histogram {
	i := bucket(d)
	for len(h) <= i {
		h = append(h, 0)
	}
	h[i]++
	return h
}

// Merge returns the histogram of the durations of h and o. It changes neither.
func (h Histogram) Merge(o Histogram) Histogram {
	merged := make(Histogram, max(len(h), len(o)))
	copy(merged, h)
	for i, n := range o {
		merged[i] += n
	}
	return merged
}

// trimmed returns h without the last buckets that are 0.
func (h Histogram) trimmed() Histogram {
	for len(h) > 0 && h[len(h)-1] == 0 {
		h = h[:len(h)-1]
	}
	return h
}

// Count returns the number of durations.
func (h Histogram) Count() (n int64) {
	for _, in := range h {
		n += in
	}
	return n
}

// Quantile returns the duration below which the fraction q of all durations lies, 0 to 1: the upper end of its bucket.
// So it is at most a fifth too long. It returns 0 if h is empty.
func (h Histogram) Quantile(q float64) time.Duration {
	rank := max(1, int64(math.Ceil(q*float64(h.Count()))))
	var n int64
	for i, in := range h {
		if n += in; in > 0 && n >= rank {
			ms := math.Exp2(float64(min(i, maxBucket)) / bucketsPerDoubling)
			return time.Duration(ms * float64(time.Millisecond)).Round(time.Microsecond)
		}
	}
	return 0
}
