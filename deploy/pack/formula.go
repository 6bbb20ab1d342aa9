package main

import (
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// formula writes the formula of Homebrew, taskledger.rb, for the archives of macOS and Linux.
func (r release) formula(binaries []binary) error {
	type bottle struct{ System, Arch, File, Sum string }
	var bottles []bottle
	for _, b := range binaries {
		system, isBrewed := map[string]string{"darwin": "macos", "linux": "linux"}[b.system]
		if !isBrewed {
			continue
		}
		sum, err := sumOf(b.path + ".tar.gz")
		if err != nil {
			return err
		}
		arch := map[string]string{"amd64": "intel", "arm64": "arm"}[b.arch]
		bottles = append(bottles, bottle{system, arch, filepath.Base(b.path) + ".tar.gz", sum})
	}
	f, err := os.Create(filepath.Join(r.dir, "taskledger.rb"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return ruby.Execute(f, map[string]any{
		"Version": strings.TrimPrefix(r.version, "v"), "Tag": r.version, "Bottles": bottles,
	})
}

var ruby = template.Must(template.New("formula").Parse(`class Taskledger < Formula
  desc "Task queue, outbox and audit log in one append-only PostgreSQL table"
  homepage "https://github.com/taskledger/taskledger"
  version "{{.Version}}"
  license "Apache-2.0"
{{- range .Bottles}}

  on_{{.System}} do
    on_{{.Arch}} do
      url "https://github.com/taskledger/taskledger/releases/download/{{$.Tag}}/{{.File}}"
      sha256 "{{.Sum}}"
    end
  end
{{- end}}

  def install
    bin.install "taskledger"
    generate_completions_from_executable(bin/"taskledger", "completion")
  end

  service do
    run [opt_bin/"taskledger", "serve", "--listen", "127.0.0.1:8080"]
    keep_alive true
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/taskledger --version")
  end
end
`))
