package metrics_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/metrics"
)

// The alert rules are valid, and each fires when it should and not otherwise.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../deploy/prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	checkExist(t, string(text))
	tests, err := os.ReadFile("../deploy/prometheus/rules.test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(text), -1) {
		if !regexp.MustCompile(`alertname: ` + alert[1] + `\n\s+exp_alerts:\n\s+- `).Match(tests) {
			t.Errorf("no test has %s firing", alert[1])
		}
		if !strings.Contains(string(tests), "alertname: "+alert[1]+"}") {
			t.Errorf("no test has %s not firing", alert[1])
		}
	}
	for _, args := range [][]string{{"check", "rules", "rules.yml"}, {"test", "rules", "rules.test.yml"}} {
		command := promtool(t, args...)
		command.Dir = "../deploy/prometheus"
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// The alert rules and the definitions agree on which conditions are critical: the others are warnings.
func TestRulesAgreeWithConditions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../deploy/prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range health.Critical() {
		names = append(names, string(name))
	}
	all := strings.Join(names, "|")
	for severity, matcher := range map[string]string{"critical": "=~", "warning": "!~"} {
		rule := regexp.MustCompile(`\{condition` + matcher + `"` + regexp.QuoteMeta(all) + `"\}\) > 0\n\s+for: \w+\n` +
			`\s+labels: \{severity: ` + severity + `\}\n`)
		if !rule.Match(text) {
			t.Errorf("no rule of severity %s has condition%s%q", severity, matcher, all)
		}
	}
}

// The queries of the dashboard are valid and about metrics that exist.
func TestDashboard(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../deploy/grafana/taskledger.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	queries := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			checkExist(t, target.Expr)
			queries++
			expr := strings.NewReplacer("$__rate_interval", "5m", "$kind", ".*").Replace(target.Expr)
			fmt.Fprintf(&rules, "  - record: query:%d\n    expr: %q\n", queries, expr)
		}
	}
	if queries < 20 {
		t.Errorf("%d queries, want 20 or more", queries)
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := promtool(t, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

var metricName = regexp.MustCompile(`\btaskledger_\w+`)

// checkExist checks that the metrics in a text exist.
func checkExist(t *testing.T, text string) {
	t.Helper()
	exists := make(map[string]bool)
	for _, d := range metrics.Definitions() {
		exists[d.Name] = true
		if d.Type == metrics.HistogramType {
			exists[d.Name+"_bucket"], exists[d.Name+"_sum"], exists[d.Name+"_count"] = true, true, true
		}
	}
	for _, name := range metricName.FindAllString(text, -1) {
		if !exists[name] {
			t.Errorf("there is no metric %s", name)
		}
	}
}
