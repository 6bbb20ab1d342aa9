package health_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/health"
)

// The table of conditions in docs/operations.md matches the definitions.
func TestConditionsInDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| condition | meaning | cure |\n|---|---|---|\n")
	for _, d := range health.Definitions() {
		name := fmt.Sprintf("`%s`", d.Name)
		if d.IsCritical {
			name += " (critical)"
		}
		if d.Threshold > 0 {
			name += fmt.Sprintf(" %gs", d.Threshold.Seconds())
		}
		fmt.Fprintf(&want, "| %s | %s | %s |\n", name, d.Meaning, d.Cure)
	}
	if !strings.Contains(string(text), want.String()+"\n") {
		t.Errorf("docs/operations.md has not this table:\n%s", want.String())
	}
}

// The conditions that stop all work are critical, and no other one is.
func TestCriticalConditions(t *testing.T) {
	t.Parallel()
	var got []health.Name
	for _, d := range health.Definitions() {
		if (health.Condition{Name: d.Name}).IsCritical() {
			got = append(got, d.Name)
		}
	}
	want := []health.Name{health.RelayStopped, health.RelayRefused, health.RelayBlocked, health.StreamWrites,
		health.StreamUnavailable, health.ProjectorRefused, health.DispatcherStopped}
	if diff := difference.Of(want, got); diff != "" {
		t.Errorf("critical conditions (-want, +got)\n%s", diff)
	}
	if diff := difference.Of(got, health.Critical()); diff != "" {
		t.Errorf("Critical (-IsCritical, +Critical)\n%s", diff)
	}
}
