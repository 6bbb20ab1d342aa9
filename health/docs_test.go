package health_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/health"
)

// The table of conditions in docs/operations.md is that of the definitions.
func TestConditionsInDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| condition | severity | meaning | threshold | cure |\n|---|---|---|---|---|\n")
	for _, d := range health.Definitions() {
		threshold := "none"
		if d.Threshold > 0 {
			threshold = fmt.Sprintf("%g s", d.Threshold.Seconds())
		}
		severity := "warning"
		if d.IsCritical {
			severity = "critical"
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s | %s |\n", d.Name, severity, d.Meaning, threshold, d.Cure)
	}
	if !strings.Contains(string(text), want.String()+"\n") {
		t.Errorf("docs/operations.md has not this table:\n%s", want.String())
	}
}
