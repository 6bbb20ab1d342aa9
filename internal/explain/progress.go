package explain

import "encoding/json"

// Progress returns the share of a report of progress in percent, and whether the report contains one: a number from 0
// to 1 or to 100, or an object with percent, or with done and total.
func Progress(report json.RawMessage) (share float64, isKnown bool) {
	var n float64
	if json.Unmarshal(report, &n) == nil {
		if n <= 1 {
			n *= 100
		}
		return n, n >= 0 && n <= 100
	}
	var o struct{ Percent, Done, Total *float64 }
	if json.Unmarshal(report, &o) != nil {
		return 0, false
	}
	switch {
	case o.Percent != nil:
		n = *o.Percent
	case o.Done != nil && o.Total != nil && *o.Total > 0:
		n = 100 * *o.Done / *o.Total
	default:
		return 0, false
	}
	return n, n >= 0 && n <= 100
}
