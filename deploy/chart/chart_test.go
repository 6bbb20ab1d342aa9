// Package chart_test lints and renders the chart as the command helm does.
package chart_test

import (
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

const chart = "taskledger"

// helm lint finds nothing, with the least values and with all.
func TestLint(t *testing.T) {
	t.Parallel()
	for _, values := range []map[string]any{
		{"secret": "taskledger"},
		{"secret": "taskledger", "migrateSecret": "owner", "nats": false, "serviceMonitor": true, "replicas": 1,
			"existingClaim": "data", "args": []any{"--stream=off"}},
	} {
		for _, m := range lint.RunAll(chart, values, "default").Messages {
			if m.Severity >= support.WarningSev {
				t.Errorf("%v: %s", values, m)
			}
		}
	}
}

// render returns all objects of the chart.
func render(t *testing.T, values map[string]any) (string, error) {
	t.Helper()
	c, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	release := common.ReleaseOptions{Name: "ledger", Namespace: "default", IsInstall: true}
	all, err := util.ToRenderValues(c, values, release, nil)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, all)
	var text strings.Builder
	for _, file := range files {
		text.WriteString(file)
	}
	return text.String(), err
}

// The objects have what the values name.
func TestValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		values map[string]any
		want   []string
		not    []string
	}{
		{name: "least", values: map[string]any{"secret": "db"},
			want: []string{"replicas: 2", "secretRef: {name: db}", "image: ghcr.io/taskledger/taskledger:v0.1.0",
				"emptyDir: {sizeLimit: 10Gi}", "runAsNonRoot: true", "--advertise=$(POD_IP):4222"},
			not: []string{"kind: Job", "ServiceMonitor"}},
		{name: "most", values: map[string]any{"secret": "db", "migrateSecret": "owner", "replicas": 1,
			"existingClaim": "data", "nats": false, "args": []any{"--latency=1ms"}, "serviceMonitor": true},
			want: []string{"kind: Job", "args: [migrate, up]", "claimName: data", "type: Recreate", `- "--latency=1ms"`,
				"kind: ServiceMonitor"},
			not: []string{"4222", "emptyDir"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text, err := render(t, c.values)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in\n%s", want, text)
				}
			}
			for _, not := range c.not {
				if strings.Contains(text, not) {
					t.Errorf("%q is in\n%s", not, text)
				}
			}
		})
	}
}

// Values that cannot work are refused with the cure.
func TestValuesThatCannotWork(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		values map[string]any
		want   string
	}{
		{name: "no secret", values: nil, want: "secret is required: the name of a secret with DATABASE_URL"},
		{name: "two processes on one volume", values: map[string]any{"secret": "db", "existingClaim": "data"},
			want: "existingClaim data is the volume of one process: set replicas to 1"},
		{name: "unknown value", values: map[string]any{"secret": "db", "replica": 3}, want: "replica"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if text, err := render(t, c.values); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q\n%s", err, c.want, text)
			}
		})
	}
}
