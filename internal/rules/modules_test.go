package rules_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
)

const module = "github.com/taskledger/taskledger"

// Modules of others that some package may use.
const (
	pgx        = "github.com/jackc/pgx/v5"
	goose      = "github.com/pressly/goose/v3"
	nats       = "github.com/nats-io/nats.go"
	natsServer = "github.com/nats-io/nats-server/v2"
	nkeys      = "github.com/nats-io/nkeys"
	cobra      = "github.com/spf13/cobra"
	pflag      = "github.com/spf13/pflag"
	goPretty   = "github.com/jedib0t/go-pretty/v6"
	goCron     = "github.com/netresearch/go-cron"
	yaml       = "go.yaml.in/yaml/v3"
	goMail     = "github.com/wneessen/go-mail"
	prometheus = "github.com/prometheus/client_golang"
	otel       = "go.opentelemetry.io/otel"
	xMod       = "golang.org/x/mod"
	compress   = "github.com/klauspost/compress"
	minio      = "github.com/minio/minio-go/v7"

	watermill    = "github.com/ThreeDotsLabs/watermill"
	watermillSQL = "github.com/ThreeDotsLabs/watermill-sql/v4"
)

// workspace joins the modules of the product and of its tests: all but those apart.
const workspace = ".ci/go.work"

// inWorkspace returns the environment of a command of Go that reads all modules of the workspace.
func inWorkspace(t *testing.T) []string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, workspace))
	if err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "GOWORK="+path)
}

// modules returns the directories of the modules of the workspace, in order.
func modules(t *testing.T) (dirs []string) {
	t.Helper()
	out, err := exec.Command("go", "work", "edit", "-json", filepath.Join(root, workspace)).Output()
	if err != nil {
		t.Fatal(err)
	}
	var work struct{ Use []struct{ DiskPath string } }
	if err := json.Unmarshal(out, &work); err != nil {
		t.Fatal(err)
	}
	for _, u := range work.Use {
		dirs = append(dirs, filepath.Join(filepath.Dir(workspace), u.DiskPath))
	}
	return dirs
}

// requirement is a module that a go.mod requires.
type requirement struct {
	Path     string
	Version  string
	Indirect bool
}

// requirements returns what a module requires.
func requirements(t *testing.T, dir string) []requirement {
	t.Helper()
	out, err := exec.Command("go", "mod", "edit", "-json", filepath.Join(root, dir, "go.mod")).Output()
	if err != nil {
		t.Fatal(err)
	}
	var m struct{ Require []requirement }
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal(err)
	}
	return m.Require
}

// The product's module requires at most 16 modules directly. In each go.mod a comment gives the reason for each direct
// requirement, and all require the same versions.
func TestModules(t *testing.T) {
	const limit = 16
	versions := make(map[string]string)
	for _, dir := range modules(t) {
		text := readFile(t, filepath.Join(dir, "go.mod"))
		direct := 0
		for _, r := range requirements(t, dir) {
			if other := versions[r.Path]; other != "" && other != r.Version {
				t.Errorf("%s: %s is required as %s and as %s", dir, r.Path, r.Version, other)
			}
			versions[r.Path] = r.Version
			if r.Indirect || r.Path == module {
				continue
			}
			direct++
			if !strings.Contains(text, "\t"+r.Path+" "+r.Version+" // ") {
				t.Errorf("%s: %s needs a reason in a comment", dir, r.Path)
			}
		}
		if dir == "." && direct > limit {
			t.Errorf("%d direct requirements, want at most %d", direct, limit)
		}
	}
}

// apart are modules whose requirements would set the versions of the others: .ci/run tests each of them.
var apart = []string{"bench/", "deploy/chart/", "deploy/pack/", "examples/from-river/"}

// The workspace, by which make test tests all modules, has each of them but those apart.
func TestWorkspace(t *testing.T) {
	var found []string
	for _, file := range trackedFiles(t) {
		if dir, name := filepath.Split(file); name == "go.mod" && !slices.Contains(apart, dir) {
			found = append(found, filepath.Clean("./"+dir))
		}
	}
	slices.Sort(found)
	if diff := difference.Of(found, modules(t)); diff != "" {
		t.Errorf("%s has other modules (-tree, +workspace)\n%s", workspace, diff)
	}
}

// The product's module names no second driver of PostgreSQL and none of what its users do not need: a module in go.mod
// or go.sum is one that they download, review and scan.
func TestModulesThatStayOut(t *testing.T) {
	for path, reason := range map[string]string{
		"github.com/lib/pq": "pgx is the driver",
		watermill:           "it is in the module watermill",
		watermillSQL:        "it brings lib/pq; what needs it is in bench",
		otel:                "it is in the module tracing",
		"github.com/fergusstrange/embedded-postgres": "internal/pgfetch fetches PostgreSQL",
		"github.com/xi2/xz":                          "internal/pgfetch reads no xz",
	} {
		for _, file := range []string{"../../go.mod", "../../go.sum"} {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), path+" ") {
				t.Errorf("%s names %s: %s", file, path, reason)
			}
		}
	}
}
