package rules_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
)

// linked are the modules that a program with the packages of the front door links: pgx, nats.go, and what these need.
var linked = []string{
	"github.com/jackc/pgpassfile",
	"github.com/jackc/pgservicefile",
	pgx,
	"github.com/jackc/puddle/v2",
	"github.com/klauspost/compress",
	nats,
	nkeys,
	"github.com/nats-io/nuid",
	"golang.org/x/crypto",
	"golang.org/x/sync",
	"golang.org/x/sys",
	"golang.org/x/text",
}

// A program that enqueues, works and waits links these modules and no other one.
func TestFrontDoor(t *testing.T) {
	t.Parallel()
	touchSources(t)
	args := []string{"list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}"}
	for _, pkg := range []string{"", "/ledger", "/ledger/stdsql", "/workers", "/outbox"} {
		args = append(args, module+pkg)
	}
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	modules = slices.DeleteFunc(slices.Compact(modules), func(path string) bool { return path == module })
	if diff := difference.Of(linked, modules); diff != "" {
		t.Errorf("the front door links other modules (-wanted, +linked)\n%s", diff)
	}
}
