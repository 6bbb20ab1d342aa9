package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxScrapes is the number of scrapes that are answered at once; others get 503.
const maxScrapes = 4

// Handler returns a handler of /metrics with these collectors, the collectors of the Go runtime and the process, and
// [NewBuild]. A program with its own registry registers the collectors there instead.
func Handler(all ...prometheus.Collector) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	all = append(all, NewBuild(), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, c := range all {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, ErrorHandling: promhttp.ContinueOnError,
	}), nil
}
