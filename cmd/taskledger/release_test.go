package main

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
)

var testRelease = flag.Bool("release", false, "build a release twice, which takes minutes of CPU without Go's cache")

// TestRelease builds the release for this platform twice, in two directories: the checksums are the same, the version
// is that of the tag, the SBOM has the modules of the program, the binary runs in an empty root, and the image in a
// container.
func TestRelease(t *testing.T) {
	if !*testRelease {
		t.Skip("SKIPPED without -release")
	}
	t.Parallel()
	needSBOMTool(t)
	first, second := release(t), release(t)
	sums := readOutput(t, first, "SHA256SUMS")
	if diff := difference.Of(sums, readOutput(t, second, "SHA256SUMS")); diff != "" {
		t.Errorf("the second build differs:\n%s", diff)
	}
	name := "taskledger-v0.0.1-" + runtime.GOOS + "-" + runtime.GOARCH
	for _, file := range []string{name, name + ".cdx.json", name + ".tar.gz", "taskledger-v0.0.1-image.tar"} {
		if !strings.Contains(sums, "  "+file+"\n") {
			t.Errorf("SHA256SUMS has no %s:\n%s", file, sums)
		}
	}
	checkSBOM(t, readOutput(t, first, name+".cdx.json"))
	checkEmptyRoot(t, filepath.Join(first, "dist", name))
	if runtime.GOOS == "linux" {
		checkImage(t, filepath.Join(first, "dist"), runtime.GOARCH, readOutput(t, first, name))
		checkContainer(t, filepath.Join(first, "dist", "taskledger-v0.0.1-image.tar"))
	}
}

// needSBOMTool skips a test if the tool that writes SBOMs cannot be had.
func needSBOMTool(t *testing.T) {
	t.Helper()
	script, err := os.ReadFile("../../deploy/release")
	if err != nil {
		t.Fatal(err)
	}
	tool := regexp.MustCompile(`sbom=(\S+)/cmd/cyclonedx-gomod@(\S+)`).FindSubmatch(script)
	if tool == nil {
		t.Fatal("deploy/release has no sbom=MODULE@VERSION")
	}
	module := string(tool[1]) + "@" + string(tool[2])
	if out, err := exec.CommandContext(t.Context(), "go", "mod", "download", module).CombinedOutput(); err != nil {
		t.Skipf("%s cannot be downloaded: %v\n%s", module, err, out)
	}
}

// release commits the files of this tree in a repository of its own, tags them v0.0.1 and builds them. It returns the
// repository's directory.
func release(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, line := range []string{
		`cp -R ../../. "$TO" && cd "$TO" && rm -rf .git dist bench && git init -q && git add -A`,
		`cd "$TO" && git -c user.name=x -c user.email=x@example.com commit -q -m x && git tag v0.0.1`,
		`cd "$TO" && deploy/release "$PLATFORM"`,
	} {
		run := exec.CommandContext(t.Context(), "sh", "-c", line)
		run.Env = append(os.Environ(), "TO="+dir, "PLATFORM="+runtime.GOOS+"/"+runtime.GOARCH,
			"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_DATE=2026-01-01T00:00:00Z",
			"GIT_COMMITTER_DATE=2026-01-01T00:00:00Z")
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	return dir
}

func readOutput(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "dist", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// checkSBOM checks that an SBOM has each module that the program is built from, and no other one.
func checkSBOM(t *testing.T, text string) {
	t.Helper()
	var sbom struct {
		Metadata struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal([]byte(text), &sbom); err != nil {
		t.Fatal(err)
	}
	if c := sbom.Metadata.Component; c.Name != "github.com/taskledger/taskledger" || c.Version != "v0.0.1" {
		t.Errorf("the SBOM is of %s %s", c.Name, c.Version)
	}
	have := make(map[string]bool)
	for _, c := range sbom.Components {
		if c.Name != "std" { // Go's own library
			have[c.Name+" "+c.Version] = true
		}
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-deps",
		"-f", `{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}`, ".")
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]bool)
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" {
			want[line] = true
		}
	}
	if len(want) < 10 {
		t.Fatalf("the program has only %d modules", len(want))
	}
	if diff := difference.Of(want, have); diff != "" {
		t.Errorf("modules of the program (-) and of its SBOM (+):\n%s", diff)
	}
}

// checkEmptyRoot checks that a binary needs no file: it runs in an empty root.
func checkEmptyRoot(t *testing.T, binary string) {
	t.Helper()
	root := t.TempDir()
	if err := os.Link(binary, filepath.Join(root, "taskledger")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ args, want string }{
		{args: "--version", want: "taskledger v0.0.1 ("},
		{args: "serve --help", want: "DATABASE_URL"},
	} {
		cmd := exec.CommandContext(t.Context(), "/taskledger", strings.Fields(test.args)...)
		cmd.Dir, cmd.Env = "/", []string{}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		out, err := cmd.CombinedOutput()
		if errors.Is(err, syscall.EPERM) {
			t.Log("chroot is refused: it needs CAP_SYS_CHROOT")
			return
		}
		if err != nil || !strings.Contains(string(out), test.want) {
			t.Errorf("taskledger %s: %v\n%s", test.args, err, out)
		}
	}
}
