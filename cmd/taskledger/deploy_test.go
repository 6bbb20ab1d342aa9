package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
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

// The image runs a command that exists, with variables that the program reads. Its build copies the binary of a release
// for its platform, and refuses one with another checksum.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	var words []string
	if err := json.Unmarshal([]byte(dockerfile(t, "CMD")[0]), &words); err != nil {
		t.Fatal(err)
	}
	checkServe(t, words)
	for word := range strings.FieldsSeq(dockerfile(t, "ENV")[0]) {
		name, _, _ := strings.Cut(word, "=")
		var help bytes.Buffer
		root := newApp().newRootCommand()
		root.SetOut(&help)
		if err := root.Help(); err != nil || !strings.Contains(help.String(), "$"+name+"]") {
			t.Errorf("ENV %s: no flag has this variable: %v", name, err)
		}
	}
	dist := t.TempDir()
	var sums strings.Builder
	for _, file := range []string{"amd64", "amd64.cdx.json", "arm64", "arm64.cdx.json"} {
		name := "taskledger-v0.0.1-linux-" + file
		if err := os.WriteFile(filepath.Join(dist, name), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256([]byte(file)), name)
	}
	if err := os.WriteFile(filepath.Join(dist, "SHA256SUMS"), []byte(sums.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	checkImage(t, dist, "amd64", "amd64")
	checkImage(t, dist, "arm64", "arm64")
	if err := os.WriteFile(filepath.Join(dist, "taskledger-v0.0.1-linux-arm64"), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := buildImage(t, dist, "arm64"); err == nil {
		t.Error("a binary with another checksum is accepted")
	}
}

// dockerfile returns the arguments of an instruction of the Dockerfile.
func dockerfile(t *testing.T, instruction string) (arguments []string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, instruction+" "); ok {
			arguments = append(arguments, strings.TrimSpace(rest))
		}
	}
	if len(arguments) == 0 {
		t.Fatalf("no %s", instruction)
	}
	return arguments
}

// buildImage does what the first stage of the Dockerfile does with the files of a release, and returns the program.
func buildImage(t *testing.T, dist, arch string) (program []byte, err error) {
	t.Helper()
	dir := t.TempDir()
	words := strings.Fields(strings.ReplaceAll(dockerfile(t, "COPY")[0], "${TARGETARCH}", arch))
	for _, pattern := range words[:len(words)-1] {
		files, err := filepath.Glob(filepath.Join(dist, pattern))
		if err != nil || len(files) != 1 {
			t.Fatalf("COPY %s: %q, %v", pattern, files, err)
		}
		content, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(files[0])), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := exec.CommandContext(t.Context(), "sh", "-c", dockerfile(t, "RUN")[0])
	run.Dir, run.Env = dir, append(os.Environ(), "TARGETARCH="+arch)
	if out, err := run.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(filepath.Join(dir, "taskledger"))
}

// checkImage checks that the image for a platform has a program.
func checkImage(t *testing.T, dist, arch, want string) {
	t.Helper()
	if have, err := buildImage(t, dist, arch); err != nil || string(have) != want {
		t.Errorf("%s: the image has another program than the release, of %d bytes: %v", arch, len(have), err)
	}
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
