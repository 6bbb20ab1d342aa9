package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// packed packs a release of five platforms, whose programs are texts, and returns its directory.
func packed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for platform := range strings.FieldsSeq("linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64.exe") {
		for name, text := range map[string]string{platform: "program of " + platform, platform + ".cdx.json": "{}"} {
			name = filepath.Join(dir, "taskledger-v0.1.0-"+name)
			if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := release{version: "v0.1.0", time: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC), dir: dir, files: "../.."}
	if err := r.pack(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// untarred returns the contents of the files of an archive.
func untarred(t *testing.T, in io.Reader) map[string]string {
	t.Helper()
	files := make(map[string]string)
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
	}
}

// The same binaries give the same bytes, and the checksums are those of all files.
func TestPackTwice(t *testing.T) {
	t.Parallel()
	first, second := packed(t), packed(t)
	sums := read(t, first, "SHA256SUMS")
	if other := read(t, second, "SHA256SUMS"); other != sums {
		t.Errorf("a second run gives\n%s, the first\n%s", other, sums)
	}
	if n := strings.Count(sums, "\n"); n != 10+5+2 {
		t.Errorf("%d files have checksums:\n%s", n, sums)
	}
	check(t, first, true)
}

// An archive that was cut does not pass the check that docs/deploying.md shows.
func TestArchiveThatWasCut(t *testing.T) {
	t.Parallel()
	dir := packed(t)
	archive := filepath.Join(dir, "taskledger-v0.1.0-linux-amd64.tar.gz")
	info, err := os.Stat(archive)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(archive, info.Size()-100); err != nil {
		t.Fatal(err)
	}
	check(t, dir, false)
}

func check(t *testing.T, dir string, want bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sha256sum", "-c", "--ignore-missing", "SHA256SUMS")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); (err == nil) != want {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
}

func TestArchives(t *testing.T) {
	t.Parallel()
	dir := packed(t)
	f, err := os.Open(filepath.Join(dir, "taskledger-v0.1.0-darwin-arm64.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := untarred(t, unzipped)
	if files["taskledger"] != "program of darwin-arm64" || files["LICENSE"] == "" || len(files) != 3 {
		t.Errorf("the archive of macOS: %q", files)
	}
	z, err := zip.OpenReader(filepath.Join(dir, "taskledger-v0.1.0-windows-amd64.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = z.Close() }()
	const program = "program of windows-amd64.exe"
	if f := z.File[2]; f.Name != "taskledger.exe" || f.UncompressedSize64 != uint64(len(program)) {
		t.Errorf("the archive of Windows has %s of %d bytes", f.Name, f.UncompressedSize64)
	}
}

// The image is valid, has the program of its platform, runs as another user than root, and can check its health.
func TestImage(t *testing.T) {
	t.Parallel()
	f, err := os.Open(filepath.Join(packed(t), "taskledger-v0.1.0-image.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	dir := t.TempDir()
	for name, text := range untarred(t, f) {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(outer); err != nil {
		t.Fatal(err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	name := manifest.Manifests[0].Annotations["io.containerd.image.name"]
	if name != "docker.io/library/taskledger:v0.1.0" {
		t.Errorf("Docker and Podman name the image %q", name)
	}
	wantSaved(t, dir)
	if manifest, err = index.IndexManifest(); err != nil || len(manifest.Manifests) != 2 {
		t.Fatalf("%d platforms: %v", len(manifest.Manifests), err)
	}
	for _, m := range manifest.Manifests {
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		c, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if _, hasVolume := c.Config.Volumes["/data"]; !hasVolume || c.Config.User != "65532:65532" ||
			c.Config.Healthcheck == nil || !slices.Contains(c.Config.Env, "TASKLEDGER_DATA=/data") ||
			c.Architecture != m.Platform.Architecture {
			t.Errorf("%s: %+v", m.Platform, c)
		}
		files := make(map[string]string)
		layers, err := img.Layers()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range layers {
			content, err := l.Uncompressed()
			if err != nil {
				t.Fatal(err)
			}
			for name, text := range untarred(t, content) {
				files[name] = text
			}
		}
		if want := "program of linux-" + m.Platform.Architecture; files["taskledger"] != want {
			t.Errorf("the program is %q, want %q", files["taskledger"], want)
		}
		if n := strings.Count(files["etc/ssl/certs/ca-certificates.crt"], "BEGIN CERTIFICATE"); n < 50 {
			t.Errorf("%d CAs", n)
		}
		if _, isThere := files["data/"]; !isThere {
			t.Error("no directory for the data")
		}
	}
}

// wantSaved checks the manifest.json of docker save: the tag of each platform, and files that exist.
func wantSaved(t *testing.T, dir string) {
	t.Helper()
	var saved []savedImage
	if err := json.Unmarshal([]byte(read(t, dir, "manifest.json")), &saved); err != nil {
		t.Fatal(err)
	}
	var tags []string
	for _, s := range saved {
		tags = append(tags, s.RepoTags...)
		for _, file := range append(s.Layers, s.Config) {
			if read(t, dir, file) == "" {
				t.Errorf("%s is empty", file)
			}
		}
	}
	if want := []string{"taskledger:v0.1.0", "taskledger:v0.1.0-arm64"}; !slices.Equal(tags, want) {
		t.Errorf("docker load names the images %q, want %q", tags, want)
	}
}

// A version of a commit with changed files is a valid tag.
func TestTag(t *testing.T) {
	t.Parallel()
	if tag := (release{version: "v0.1.0+dirty"}).tag(); tag != "v0.1.0_dirty" {
		t.Errorf("the tag is %s", tag)
	}
}

// The formula names the archives with their checksums.
func TestFormula(t *testing.T) {
	t.Parallel()
	dir := packed(t)
	formula := read(t, dir, "taskledger.rb")
	found := 0
	for line := range strings.Lines(read(t, dir, "SHA256SUMS")) {
		sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if strings.HasSuffix(file, ".tar.gz") {
			found++
			if !strings.Contains(formula, "/"+file+"\"\n      sha256 \""+sum+"\"") {
				t.Errorf("the formula has no %s with its checksum:\n%s", file, formula)
			}
		}
	}
	if found != 4 || strings.Contains(formula, "windows") {
		t.Errorf("%d archives:\n%s", found, formula)
	}
}

// Each platform installs its own archive by the formula, and the formula's test passes.
func TestFormulaInstalls(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ruby"); err != nil {
		t.Skip("ruby is not installed")
	}
	dir := packed(t)
	brew, err := filepath.Abs("testdata/brew.rb")
	if err != nil {
		t.Fatal(err)
	}
	for platform, names := range map[string]string{
		"macos arm": "darwin-arm64", "macos intel": "darwin-amd64",
		"linux arm": "linux-arm64", "linux intel": "linux-amd64",
	} {
		unpacked := t.TempDir()
		program := filepath.Join(unpacked, "taskledger")
		if err := os.WriteFile(program, []byte("#!/bin/sh\necho v0.1.0\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		system, arch, _ := strings.Cut(platform, " ")
		cmd := exec.CommandContext(t.Context(), "ruby", brew, filepath.Join(dir, "taskledger.rb"), system, arch)
		cmd.Dir, cmd.Env = unpacked, append(os.Environ(), "PREFIX="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", platform, err, out)
		}
		name := "taskledger-v0.1.0-" + names + ".tar.gz"
		sum, err := sumOf(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		want := "https://github.com/taskledger/taskledger/releases/download/v0.1.0/" + name + "\n" + sum + "\n"
		if string(out) != want {
			t.Errorf("%s: %s, want %s", platform, out, want)
		}
	}
}

// A release without its binaries is refused.
func TestNoBinaries(t *testing.T) {
	t.Parallel()
	if err := (release{version: "v0.1.0", dir: t.TempDir()}).pack(); err == nil {
		t.Error("an empty directory is packed")
	}
}
