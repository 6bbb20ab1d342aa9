package metrics_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/taskledger/taskledger/metrics"
)

// scrape returns the body of /metrics with these collectors.
func scrape(t *testing.T, all ...prometheus.Collector) string {
	t.Helper()
	h, err := metrics.Handler(all...)
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/metrics", nil))
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.Code != http.StatusOK {
		t.Fatalf("%d %v: %s", answer.Code, err, text)
	}
	return string(text)
}
