package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// checkServe checks that a command line is one of serve.
func checkServe(t *testing.T, words []string) {
	t.Helper()
	serve, rest, err := newApp().newRootCommand().Find(words)
	if err != nil || serve.Name() != "serve" {
		t.Fatalf("%q runs %v: %v", words, serve, err)
	}
	if err := serve.ParseFlags(rest); err != nil {
		t.Errorf("%q: %v", words, err)
	}
}

// The image runs a command that exists.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := bytes.Cut(text, []byte("\nCMD "))
	var words []string
	if err := json.Unmarshal(bytes.TrimSpace(line), &words); err != nil {
		t.Fatalf("CMD %s: %v", line, err)
	}
	checkServe(t, words)
}

// The manifests of Kubernetes run a command that exists, and probe the endpoints of serve.
func TestKubernetesManifests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/kubernetes/taskledger.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type probe struct {
		HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
	}
	var object struct {
		Kind string
		Spec struct {
			Replicas int
			Template struct {
				Spec struct {
					Containers []struct {
						Args      []string
						Liveness  probe `yaml:"livenessProbe"`
						Readiness probe `yaml:"readinessProbe"`
					}
				}
			}
		}
	}
	var kinds []string
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		object.Spec.Template.Spec.Containers = nil
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, object.Kind)
		for _, c := range object.Spec.Template.Spec.Containers {
			checkServe(t, c.Args)
			if c.Liveness.HTTPGet.Path != "/healthz" || c.Readiness.HTTPGet.Path != "/readyz" {
				t.Errorf("probes: %+v, %+v", c.Liveness, c.Readiness)
			}
		}
	}
	if have := strings.Join(kinds, " "); have != "Deployment PodDisruptionBudget Service" {
		t.Errorf("objects: %s", have)
	}
}

// The unit of systemd is valid, and starts a command that exists.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/systemd/taskledger.service")
	if err != nil {
		t.Fatal(err)
	}
	const command = "/usr/local/bin/taskledger "
	_, line, _ := strings.Cut(string(text), "ExecStart="+command)
	line, _, _ = strings.Cut(line, "\n")
	checkServe(t, strings.Fields(line))
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	// The program is not installed here.
	unit := filepath.Join(t.TempDir(), "taskledger.service")
	installed := strings.ReplaceAll(string(text), command, "/bin/true ")
	if err := os.WriteFile(unit, []byte(installed), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", unit).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
