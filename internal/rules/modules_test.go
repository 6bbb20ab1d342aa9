package rules_test

import (
	"os"
	"strings"
	"testing"
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
	xSync      = "golang.org/x/sync"
	goCron     = "github.com/netresearch/go-cron"
	yaml       = "go.yaml.in/yaml/v3"
	goMail     = "github.com/wneessen/go-mail"
	prometheus = "github.com/prometheus/client_golang"
	otel       = "go.opentelemetry.io/otel"
	xTime      = "golang.org/x/time"
	xMod       = "golang.org/x/mod"

	watermill    = "github.com/ThreeDotsLabs/watermill"
	watermillSQL = "github.com/ThreeDotsLabs/watermill-sql/v4"
)

// go.mod requires at most 16 modules directly, each with its reason in a comment.
func TestModules(t *testing.T) {
	const limit = 16
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, direct, _ := strings.Cut(string(text), "require (\n")
	direct, _, _ = strings.Cut(direct, ")\n")
	lines := strings.Split(strings.TrimSpace(direct), "\n")
	for _, line := range lines {
		if _, reason, _ := strings.Cut(line, "// "); reason == "" || reason == "indirect" {
			t.Errorf("%s: a direct requirement needs a reason in a comment", strings.TrimSpace(line))
		}
	}
	if len(lines) > limit {
		t.Errorf("%d direct requirements, want at most %d", len(lines), limit)
	}
}

// The product's module names no second driver of PostgreSQL and none of what its users do not need: a module in go.mod
// or go.sum is one that they download, review and scan.
func TestModulesThatStayOut(t *testing.T) {
	for path, reason := range map[string]string{
		"github.com/lib/pq": "pgx is the driver",
		watermillSQL:        "it brings lib/pq; what needs it is in bench",
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
