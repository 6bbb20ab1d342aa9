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
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/taskledger/taskledger/internal/broker"
	"github.com/taskledger/taskledger/internal/difference"
)

// checkServe checks that a command line is one of serve, and returns the command with its flags.
func checkServe(t *testing.T, words []string) *cobra.Command {
	t.Helper()
	serve, rest, err := newApp().newRootCommand().Find(words)
	if err != nil || serve.Name() != "serve" {
		t.Fatalf("%q runs %v: %v", words, serve, err)
	}
	if err := serve.ParseFlags(rest); err != nil {
		t.Errorf("%q: %v", words, err)
	}
	return serve
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

// manifest is what the test reads of an object of Kubernetes.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Replicas      int
		ServiceName   string    `yaml:"serviceName"`
		PodManagement string    `yaml:"podManagementPolicy"`
		ClusterIP     string    `yaml:"clusterIP"`
		NotReadyToo   bool      `yaml:"publishNotReadyAddresses"`
		Selector      yaml.Node // of a Service: labels; else with matchLabels
		Ports         []struct{ Port int }
		MinAvailable  int `yaml:"minAvailable"`
		MaxAway       int `yaml:"maxUnavailable"`
		Template      struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct{ Containers []container }
		}
	}
}

type container struct {
	Args []string
	Env  []struct {
		Name, Value string
		ValueFrom   struct {
			FieldRef struct {
				Path string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
		} `yaml:"valueFrom"`
	}
	Ports []struct {
		Name string
		Port int `yaml:"containerPort"`
	}
	Liveness  probe `yaml:"livenessProbe"`
	Readiness probe `yaml:"readinessProbe"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

// labels returns the labels that an object selects.
func (m manifest) labels(t *testing.T) (labels map[string]string) {
	t.Helper()
	selector := struct {
		Match map[string]string `yaml:"matchLabels"`
	}{}
	into := any(&selector)
	if m.Kind == "Service" {
		into = &labels
	}
	if err := m.Spec.Selector.Decode(into); err != nil {
		t.Fatal(err)
	}
	if m.Kind != "Service" {
		labels = selector.Match
	}
	return labels
}

// expand returns the command line of a pod, as Kubernetes makes it of the variables of its container.
func (c container) expand(pod string) []string {
	fields := map[string]string{"metadata.name": pod, "metadata.namespace": "jobs", "status.podIP": "10.1.2.3"}
	var values []string
	args := slices.Clone(c.Args)
	for _, e := range c.Env {
		value := e.Value
		if path := e.ValueFrom.FieldRef.Path; path != "" {
			value = fields[path]
		}
		value = strings.NewReplacer(values...).Replace(value) // of variables that come before
		values = append(values, "$("+e.Name+")", value)
	}
	for i := range args {
		args[i] = strings.NewReplacer(values...).Replace(args[i])
	}
	return args
}

// readManifests returns the objects of a file of manifests.
func readManifests(t *testing.T, name string) (all []manifest) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/kubernetes/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var m manifest
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
}

// The manifests of Kubernetes run a command that exists with addresses that it accepts, probe the endpoints of serve,
// and their objects select its pods.
func TestKubernetesManifests(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"taskledger.yaml": "Deployment PodDisruptionBudget Service",
		"peers.yaml":      "StatefulSet Service PodDisruptionBudget Service",
	} {
		var kinds []string
		all := readManifests(t, file)
		for _, m := range all {
			kinds = append(kinds, m.Kind)
			if diff := difference.Of(all[0].Spec.Template.Metadata.Labels, m.labels(t)); diff != "" {
				t.Errorf("%s: %s %s selects other pods:\n%s", file, m.Kind, m.Metadata.Name, diff)
			}
			if m.Kind == "PodDisruptionBudget" && m.Spec.MinAvailable+m.Spec.MaxAway != 1 {
				t.Errorf("%s: the budget of disruptions is %+v", file, m.Spec)
			}
		}
		if have := strings.Join(kinds, " "); have != want {
			t.Errorf("%s: objects: %s", file, have)
		}
		containers := all[0].Spec.Template.Spec.Containers
		if len(containers) != 1 {
			t.Fatalf("%s: %d containers", file, len(containers))
		}
		for pod := range all[0].Spec.Replicas {
			checkAddresses(t, containers[0].expand(fmt.Sprint(all[0].Metadata.Name, "-", pod)))
		}
		if c := containers[0]; c.Liveness.HTTPGet.Path != "/healthz" || c.Readiness.HTTPGet.Path != "/readyz" {
			t.Errorf("%s: probes: %+v, %+v", file, c.Liveness, c.Readiness)
		}
	}
}

// checkAddresses checks the command line of a pod: it is one of serve, and its addresses are valid.
func checkAddresses(t *testing.T, words []string) (peers []string) {
	t.Helper()
	serve := checkServe(t, words)
	text := func(flag string) string { return serve.Flags().Lookup(flag).Value.String() }
	peers, err := serve.Flags().GetStringSlice("peers")
	if err != nil {
		t.Fatal(err)
	}
	c := broker.Config{Listen: text("nats-listen"), Advertise: text("advertise"), Peers: peers}
	if err := c.CheckAddresses(); err != nil {
		t.Errorf("%q: %v", words, err)
	}
	if line := strings.Join(words, " "); strings.Contains(line, "$(") {
		t.Errorf("a variable is not defined: %s", line)
	}
	return peers
}

// The pods of the cluster are its peers: all of them have the same list, which names each of them below the headless
// service. They start at the same time and find each other before they are ready.
func TestKubernetesPeers(t *testing.T) {
	t.Parallel()
	all := readManifests(t, "peers.yaml")
	set := all[0].Spec
	i := slices.IndexFunc(all, func(m manifest) bool { return m.Kind == "Service" && m.Spec.ClusterIP == "None" })
	if i < 0 || all[i].Metadata.Name != set.ServiceName || !all[i].Spec.NotReadyToo || set.PodManagement != "Parallel" {
		t.Errorf("the headless service: %+v of %+v", i, set)
	}
	var want []string
	for pod := range set.Replicas {
		want = append(want, fmt.Sprintf("%s-%d.%s.jobs.svc", all[0].Metadata.Name, pod, set.ServiceName))
	}
	for pod := range set.Replicas {
		words := set.Template.Spec.Containers[0].expand(fmt.Sprint(all[0].Metadata.Name, "-", pod))
		if diff := difference.Of(want, checkAddresses(t, words)); diff != "" {
			t.Errorf("the peers of pod %d (-pods +peers):\n%s", pod, diff)
		}
		if !slices.Contains(words, "--advertise="+want[pod]) {
			t.Errorf("pod %d advertises another name than %s: %q", pod, want[pod], words)
		}
	}
	ports := map[int]bool{}
	for _, p := range set.Template.Spec.Containers[0].Ports {
		ports[p.Port] = true
	}
	for _, p := range all[i].Spec.Ports {
		if !ports[p.Port] {
			t.Errorf("the pods do not have port %d of the headless service", p.Port)
		}
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
