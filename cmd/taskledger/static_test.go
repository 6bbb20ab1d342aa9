package main

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

var buildStatic = flag.Bool("static", false, "build the static program and run it in an empty root")

// A static binary needs no file: it runs in an empty root.
func TestBinaryRunsInEmptyRoot(t *testing.T) {
	if !*buildStatic {
		t.Skip("-static builds the program without cgo, which takes minutes with an empty build cache")
	}
	t.Parallel()
	root := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join(root, "taskledger"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, test := range []struct{ args, want string }{
		{"--version", "taskledger"},
		{"serve --help", "DATABASE_URL"},
	} {
		cmd := exec.CommandContext(t.Context(), "/taskledger", strings.Fields(test.args)...)
		cmd.Dir, cmd.Env = "/", []string{}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		out, err := cmd.CombinedOutput()
		if errors.Is(err, syscall.EPERM) {
			t.Skip("chroot is refused: it needs CAP_SYS_CHROOT")
		}
		if err != nil || !strings.Contains(string(out), test.want) {
			t.Errorf("taskledger %s: %v\n%s", test.args, err, out)
		}
	}
}
