package metrics

// Definition describes a metric.
type Definition struct {
	Name   string
	Type   string
	Labels []string
	Help   string
}

// HistogramType is the type of a histogram.
const HistogramType = histogram

// Definitions returns the definitions of all metrics.
func Definitions() []Definition {
	all := make([]Definition, 0, len(definitions))
	for _, m := range definitions {
		all = append(all, Definition{m.name, m.kind, m.labels, m.help})
	}
	return all
}
