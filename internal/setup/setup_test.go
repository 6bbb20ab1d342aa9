//go:build linux

package main

import (
	"cmp"
	"errors"
	"flag"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/taskledger/taskledger/internal/pgfetch"
)

// skipped is the exit status of a script that this machine does not let run.
const skipped = 77

var withPackage = flag.Bool("package", false, "in TestFreshMachine install the distribution's package, too: minutes")

// README's commands and serve work on a machine without PostgreSQL: this one, behind a file system that hides it.
func TestFreshMachine(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can hide the PostgreSQL of this machine")
	}
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		script  string
		fetches bool
	}{
		{"fetch.sh", true},
		{"serve.sh", true},
		{"package.sh", false},
	} {
		t.Run(test.script, func(t *testing.T) {
			t.Parallel()
			switch {
			case test.fetches:
				needRegistry(t)
			case !*withPackage:
				t.Skip("installs a package: make fresh-machine")
			}
			cmd := exec.Command("unshare", "--mount", "sh", "-eu", "testdata/fresh_machine.sh", t.TempDir(), repository,
				test.script)
			cmd.Env = append(os.Environ(), "TASKLEDGER_POSTGRES_BINARIES=", "TASKLEDGER_TEST_DATABASE_URL=",
				"TASKLEDGER_NO_FETCH=", "YES=", "DATABASE_URL=", "NATS_URL=", "MAKEFLAGS=", "container=",
				"KUBERNETES_SERVICE_HOST=")
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			switch {
			case errors.As(err, &exit) && exit.ExitCode() == skipped:
				t.Skipf("this machine has no overlay file system, or no distribution that answers: %s", out)
			case err != nil:
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func needRegistry(t *testing.T) {
	t.Helper()
	response, err := http.Get(cmp.Or(os.Getenv(pgfetch.RegistryVariable), pgfetch.DefaultRegistry))
	if err != nil {
		t.Skipf("npm's registry cannot be reached: %v", err)
	}
	_ = response.Body.Close()
}
