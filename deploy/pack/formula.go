package main

import (
	"os"
	"path/filepath"
	"slices"
	"text/template"
)

// bottles are the archives of a system.
type bottles struct {
	Name    string
	Bottles []bottle
}

// bottle is the archive of a platform.
type bottle struct{ Arch, File, Sum string }

// formula writes the formula of Homebrew, taskledger.rb, for the archives of macOS and Linux. Homebrew allows one block
// for each system, macOS first, and within it arm before intel.
func (r release) formula(binaries []binary) error {
	systems := []bottles{{Name: "macos"}, {Name: "linux"}}
	for _, b := range slices.Backward(binaries) {
		i := slices.Index([]string{"darwin", "linux"}, b.system)
		if i < 0 {
			continue
		}
		sum, err := sumOf(b.path + ".tar.gz")
		if err != nil {
			return err
		}
		arch := map[string]string{"amd64": "intel", "arm64": "arm"}[b.arch]
		systems[i].Bottles = append(systems[i].Bottles, bottle{arch, filepath.Base(b.path) + ".tar.gz", sum})
	}
	systems = slices.DeleteFunc(systems, func(s bottles) bool { return len(s.Bottles) == 0 })
	f, err := os.Create(filepath.Join(r.dir, "taskledger.rb"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return ruby.Execute(f, map[string]any{"Tag": r.version, "Systems": systems})
}

// The version is that of the addresses: Homebrew's audit refuses one that repeats it.
var ruby = template.Must(template.New("formula").Parse(`class Taskledger < Formula
  desc "Task queue, outbox and audit log in one append-only PostgreSQL table"
  homepage "https://github.com/taskledger/taskledger"
  license "Apache-2.0"
{{- range .Systems}}

  on_{{.Name}} do
{{- range .Bottles}}
    on_{{.Arch}} do
      url "https://github.com/taskledger/taskledger/releases/download/{{$.Tag}}/{{.File}}"
      sha256 "{{.Sum}}"
    end
{{- end}}
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
