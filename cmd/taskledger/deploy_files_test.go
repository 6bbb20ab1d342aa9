package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// readYAML decodes a file of the repository.
func readYAML(t *testing.T, name string, to any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, to); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// The services of compose.yaml run commands that exist, wait for services that exist, are built from files that exist,
// and have time to stop: Docker kills a container 10 s after SIGTERM, in the middle of its handlers. PostgreSQL is
// healthy once it answers by TCP: the image's first server, on the socket alone, stops before migrate connects.
func TestCompose(t *testing.T) {
	t.Parallel()
	const dir = "deploy/compose/"
	var file struct {
		Services map[string]struct {
			Image           string
			Command         []string
			Restart         string
			StopGracePeriod time.Duration `yaml:"stop_grace_period"`
			Build           struct{ Context, Dockerfile, Target string }
			Healthcheck     struct{ Test []string }
			DependsOn       map[string]struct{ Condition string } `yaml:"depends_on"`
			Volumes         []string
		}
		Volumes map[string]any
	}
	readYAML(t, dir+"compose.yaml", &file)
	if len(file.Services) != 5 {
		t.Errorf("%d services", len(file.Services))
	}
	healthy := strings.Join(file.Services["postgres"].Healthcheck.Test, " ")
	if !strings.Contains(healthy, " -h 127.0.0.1 ") {
		t.Errorf("PostgreSQL is healthy by %s", healthy)
	}
	for name, s := range file.Services {
		if strings.Contains(s.Image, "TASKLEDGER_IMAGE") {
			checkCommand(t, name, s.Command)
		}
		if s.Build.Dockerfile != "" {
			checkDockerfile(t, filepath.Join("../..", dir, s.Build.Context), s.Build.Dockerfile, s.Build.Target)
		}
		if name != "postgres" && s.Restart != "" && s.StopGracePeriod <= stopTimeout {
			t.Errorf("%s is killed after %s", name, s.StopGracePeriod)
		}
		for other := range s.DependsOn {
			if _, exists := file.Services[other]; !exists {
				t.Errorf("%s waits for %s", name, other)
			}
		}
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			if _, exists := file.Volumes[volume]; !exists {
				t.Errorf("%s has the volume %s", name, volume)
			}
		}
	}
	text, err := os.ReadFile("../../" + dir + "compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^# .* exec serve /taskledger (.*?)(?:  .*)?$`)
	commands := command.FindAllStringSubmatch(string(text), -1)
	for _, c := range commands {
		checkCommand(t, "the first comment", strings.Fields(c[1]))
	}
	if len(commands) != 3 {
		t.Errorf("%d commands in the first comment", len(commands))
	}
}

// checkCommand checks that the program has a command with its flags.
func checkCommand(t *testing.T, where string, args []string) {
	t.Helper()
	command, rest, err := newApp().newRootCommand().Find(args)
	if err == nil {
		err = command.ParseFlags(rest)
	}
	if err != nil || !command.HasParent() {
		t.Errorf("%s: %q: %v", where, args, err)
	}
}

// checkDockerfile checks that a Dockerfile copies files that exist, and that its target does not run as root.
func checkDockerfile(t *testing.T, context, name, target string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(context, name))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^COPY (\S+) `).FindAllStringSubmatch(string(text), -1) {
		if strings.HasPrefix(m[1], "--") {
			continue
		}
		if _, err := os.Stat(filepath.Join(context, m[1])); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, stage, exists := strings.Cut(string(text), " AS "+target+"\n")
	stage, _, _ = strings.Cut(stage, "\nFROM ")
	if !exists || !strings.Contains(stage, "\nUSER 65532:65532\n") {
		t.Errorf("%s: the target %s is missing, or runs as root", name, target)
	}
}

// The query of the ScaledObject counts the tasks of its kinds that wait, for a login with the role reader alone.
func TestScaledObject(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/keda/scaledobject.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, second, _ := strings.Cut(string(text), "\n---\n")
	var object struct {
		Spec struct {
			Triggers []struct{ Metadata struct{ Query string } }
		}
	}
	if err := yaml.Unmarshal([]byte(second), &object); err != nil {
		t.Fatal(err)
	}
	db := ledgertest.Pool(t, ledgertest.App, "relay")
	for _, key := range []string{"coupon.send/A-1", "coupon.send/A-2", "coupon.mail/A-1", "invoice/A-1"} {
		ledgertest.Enqueue(t, db, ledgertest.Key(t, key), "{}")
	}
	p, err := projector.New(projector.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	reader, query := ledgertest.As(t, db, "reader"), object.Spec.Triggers[0].Metadata.Query
	for tasks := 0; tasks != 3; time.Sleep(10 * time.Millisecond) {
		if err := reader.QueryRow(ctx, query).Scan(&tasks); err != nil {
			t.Errorf("%s: counted %d, want 3: %v", query, tasks, err)
			break
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The workflows run targets of the Makefile that exist, and Dependabot reads each module.
func TestGitHub(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ci", "release"} {
		var workflow struct {
			Jobs map[string]struct{ Steps []struct{ Run, Uses string } }
		}
		readYAML(t, ".github/workflows/"+name+".yml", &workflow)
		targets := 0
		for _, job := range workflow.Jobs {
			for _, step := range job.Steps {
				if _, target, isMake := strings.Cut(step.Run, "make "); isMake {
					targets++
					if !strings.Contains(string(makefile), "\n"+target+": ##") {
						t.Errorf("%s: there is no target %q", name, target)
					}
				}
			}
		}
		if targets == 0 {
			t.Errorf("%s runs no target", name)
		}
	}
	var bot struct {
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directory   string
			Directories []string
		}
	}
	readYAML(t, ".github/dependabot.yml", &bot)
	var modules []string
	err = filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "go.mod" {
			dir, _ := filepath.Rel("../..", filepath.Dir(path))
			modules = append(modules, "/"+strings.TrimPrefix(dir, "."))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(modules)
	if diff := difference.Of(modules, slices.Sorted(slices.Values(bot.Updates[0].Directories))); diff != "" {
		t.Errorf("modules (-), those of Dependabot (+)\n%s", diff)
	}
	for _, name := range []string{"bug", "feature", "config"} {
		var form map[string]any
		readYAML(t, ".github/ISSUE_TEMPLATE/"+name+".yml", &form)
	}
}
