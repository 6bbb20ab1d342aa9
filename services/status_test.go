package services_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/services"
)

// ReadStatus names the conditions of a ledger without services, and refuses a threshold of another name.
func TestReadStatus(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "reader")
	text, err := services.ReadStatus(t.Context(), db, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Degraded []struct{ Name, Cure string }
	}
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Degraded) == 0 || report.Degraded[0].Name != "relay_stopped" || report.Degraded[0].Cure == "" {
		t.Errorf("got %+v", report)
	}
	_, err = services.ReadStatus(t.Context(), db, nil, map[string]time.Duration{"bored": time.Second})
	if err == nil || !strings.Contains(err.Error(), `"bored"`) {
		t.Errorf("got %v", err)
	}
}
