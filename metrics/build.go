package metrics

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// NewBuild returns a collector with the version of this program.
func NewBuild() prometheus.Collector {
	version, revision := "(devel)", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: build.name, Help: build.help}, build.labels)
	gauge.WithLabelValues(version, revision, runtime.Version()).Set(1)
	return gauge
}
