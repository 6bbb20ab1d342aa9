// Package chart_test lints and renders the chart as the command helm does.
package chart_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
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
	for name, file := range files {
		text.WriteString(file)
		if strings.HasSuffix(name, ".yaml") {
			checkObjects(t, name, file)
		}
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

// The manifests for kubectl are valid too.
func TestManifests(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("../kubernetes/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		checkObjects(t, name, string(text))
	}
}

// checkObjects checks that each object of a file has the fields of its type, and no others, as strict validation does.
func checkObjects(t *testing.T, name, file string) {
	t.Helper()
	for text := range strings.SplitSeq("\n"+file, "\n---\n") {
		var kind struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
		object, isKnown := map[string]any{
			"apps/v1 Deployment":            new(apps.Deployment),
			"apps/v1 StatefulSet":           new(apps.StatefulSet),
			"batch/v1 Job":                  new(batch.Job),
			"policy/v1 PodDisruptionBudget": new(policy.PodDisruptionBudget),
			"v1 Service":                    new(core.Service),

			// The operator of Prometheus defines it; a file that is left out is empty.
			"monitoring.coreos.com/v1 ServiceMonitor": new(any),
			" ": new(any),
		}[kind.APIVersion+" "+kind.Kind]
		if !isKnown {
			t.Errorf("%s: unknown type %s of %s", name, kind.Kind, kind.APIVersion)
		} else if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
			t.Errorf("%s: %s: %v", name, kind.Kind, err)
		}
	}
}
