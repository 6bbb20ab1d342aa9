// Package imports holds the test of who may import whom. Test code may import anything.
package imports_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	cobra      = "github.com/spf13/cobra"
	pflag      = "github.com/spf13/pflag"
	goPretty   = "github.com/jedib0t/go-pretty/v6"
	xSync      = "golang.org/x/sync"
	goCron     = "github.com/netresearch/go-cron"
	yaml       = "go.yaml.in/yaml/v3"
	goMail     = "github.com/wneessen/go-mail"

	watermill    = "github.com/ThreeDotsLabs/watermill"
	watermillSQL = "github.com/ThreeDotsLabs/watermill-sql/v3"
)

// A rule says what the code of a package may import beside the standard library. The names of
// our own packages begin with a slash; a trailing /... allows what lies below.
type rule struct {
	pkg    string
	may    []string
	reason string
}

var rules = []rule{
	{"/ledger", []string{"/internal/pgerr", "/internal/pgarray", "/internal/pgquery", pgx}, "who only enqueues pays for the standard library and pgx"},
	{"/ledger/feed", []string{"/ledger", "/internal/pgerr", "/internal/pgquery", "/internal/loop", pgx}, "following the ledger takes PostgreSQL and nothing else"},
	{"/ledger/stdsql", []string{"/ledger", pgx}, "an adapter, and no more"},
	{"/ledger/ledgertest", []string{"/ledger", "/migrations", "/internal/pgquery", "/internal/pgserver", pgx}, "the users' tests need a database and not our broker"},
	{"/ledger/periodic", []string{"/ledger", "/internal/pgarray", "/internal/loop", "/internal/pgerr", "/internal/pgquery", "/internal/fault", pgx, goCron}, "a producer: schedules enqueue tasks and know nothing of workers"},
	{"/outbox", []string{"/ledger", "/ledger/feed", "/internal/pgarray", "/internal/loop", "/internal/pgerr", "/internal/pgquery", "/internal/stream", "/internal/fault", pgx, nats, xSync}, "relay, workers and projector meet in the ledger and on the stream, never in each other"},
	{"/outbox/watermill", []string{"/ledger", "/internal/loop", "/internal/stream", "/internal/envelope", nats, watermill, watermillSQL}, "an adapter: it needs the ledger and the stream, not the relay"},
	{"/workers", []string{"/ledger", "/ledger/feed", "/workers/internal/...", "/internal/pgarray", "/internal/pgquery", "/internal/loop", "/internal/pgerr", "/internal/printable", "/internal/stream", "/internal/fault", pgx, nats, xSync}, "relay, workers and projector meet in the ledger and on the stream, never in each other"},
	{"/workers/internal/attempt", []string{"/ledger", "/workers/internal/atmostonce", "/workers/internal/inflight", "/workers/internal/queue", "/internal/pgarray", "/internal/loglimit", "/internal/loop", "/internal/pgerr", "/internal/pgquery", "/internal/printable", "/internal/stream", "/internal/fault", pgx}, "one attempt knows neither handlers and hooks nor the pool: package workers passes them in"},
	{"/workers/internal/inflight", []string{"/ledger", "/internal/stream", nats}, "what is in flight is a set of messages"},
	{"/workers/internal/slots", nil, "slots are given to anything"},
	{"/workers/internal/queue", nil, "a queue of anything"},
	{"/workers/internal/shards", []string{"/ledger", "/workers/internal/lease", "/internal/pgarray", "/internal/loop", "/internal/pgerr", pgx, xSync}, "shards are divided without knowing what is done in them"},
	{"/workers/internal/lease", []string{"/ledger", "/internal/pgerr"}, "leases are rows"},
	{"/workers/internal/atmostonce", []string{"/ledger"}, "workers and the reconciler recognize the same attempts without importing each other"},
	{"/workers/watermill", []string{"/ledger", "/workers", "/internal/envelope", pgx, watermill}, "an adapter: it uses what package workers exports, and nothing beneath it"},
	{"/workers/scheduler", []string{"/ledger", "/ledger/feed", "/internal/fault", "/internal/loop", "/internal/pgarray", "/internal/pgerr", "/internal/pgquery", pgx}, "a service of its own: it appends what is due, and does not depend on how workers run tasks"},
	{"/workers/reconciler", []string{"/ledger", "/workers/internal/atmostonce", "/internal/loop", "/internal/pgarray", "/internal/pgerr", "/internal/pgquery", "/internal/stream", pgx, nats}, "a service of its own: it compares the ledger with the stream, and does not depend on how workers run tasks"},
	{"/workers/operator", []string{"/ledger", "/internal/pgarray", "/internal/pgerr", "/internal/pgquery", "/internal/printable", "/internal/stream", pgx, nats}, "a service of its own: it changes tasks by appending events, as any other process does"},
	{"/workers/internal/bundle", []string{"/ledger/...", "/outbox", "/workers", "/workers/scheduler", "/workers/operator", "/projector", "/internal/...", pgx, nats}, "for tests alone: what workers and the services beside it are tested with"},
	{"/workers/workertest", []string{"/ledger", "/internal/pgarray", "/workers", "/internal/stream", "/internal/natsserver", "/internal/fault", pgx, nats}, "the users' tests need a broker, and their production code does not get it"},
	{"/projector", []string{"/ledger", "/ledger/feed", "/internal/pgarray", "/internal/loop", "/internal/pgerr", "/internal/pgquery", "/internal/fault", pgx, xSync}, "projections read the ledger, and work without a broker"},
	{"/health", []string{"/ledger", "/ledger/feed", "/ledger/periodic", "/outbox", "/projector", "/workers/scheduler", "/workers/operator", "/internal/pgerr", "/internal/pgquery", "/internal/printable", "/internal/stream", nats}, "it reads what the services store; only alarms, commands and probes are above it"},
	{"/health/alarm", []string{"/ledger", "/ledger/periodic", "/health", "/workers/operator", "/internal/fault", "/internal/loop", "/internal/pgerr", "/internal/pgquery", "/internal/printable", pgx, goMail}, "alarms report conditions of package health, and need PostgreSQL only to be delivered"},
	{"/migrations", []string{"/ledger", pgx, goose}, "the schema is made before there is a ledger; only the error for its absence is shared"},
	{"/internal/plantest", []string{pgx}, "a helper of tests, which every package may use"},
	{"/internal/fault", nil, "every package has crash points"},
	{"/internal/watermilltest", []string{"/ledger", "/ledger/ledgertest", "/outbox", "/outbox/watermill", "/internal/natsserver", "/internal/stream", pgx, nats, watermill}, "only the tests of the Watermill adapters use it"},
	{"/internal/pgerr", []string{pgx}, "what an error of the database means is defined once"},
	{"/internal/pgarray", nil, "array literals are built in one way"},
	{"/internal/tracestate", nil, "a format of W3C, and no more"},
	{"/internal/pgquery", []string{pgx}, "statements of one row are run in one way"},
	{"/internal/loglimit", nil, "lines that repeat are bounded in one way"},
	{"/internal/loop", nil, "services wait, back off and stop in one way"},
	{"/internal/printable", nil, "untrusted text is escaped in one way"},
	{"/internal/reserve", nil, "ports and locks do not depend on the servers that use them"},
	{"/internal/pgserver", []string{"/internal/loop", "/internal/pgerr", "/internal/reserve", pgx}, "a server does not depend on its content"},
	{"/internal/natsserver", []string{"/internal/reserve", natsServer}, "a server does not depend on its messages"},
	{"/internal/stream", []string{"/ledger", "/internal/tracestate", nats}, "the form of messages, shared by those who send and who receive"},
	{"/internal/envelope", []string{"/ledger", "/internal/stream", watermill}, "the form of Watermill's messages, shared by those who send and who receive"},
	{"/internal/embedded", []string{"/internal/pgerr", "/internal/pgserver", "/internal/natsserver", "/internal/reserve", pgx},
		"it starts and announces servers; the commands migrate and use them"},
	{"/cmd/taskledger", []string{"/cmd/taskledger/internal/...", "/ledger/...", "/outbox", "/workers/...", "/projector", "/health/...", "/migrations", "/internal/...", pgx, nats, cobra, pflag, goPretty, yaml}, "the command wires everything"},
	{"/cmd/taskledger/internal/demo", []string{
		"/ledger", "/outbox", "/workers", "/workers/scheduler", "/ledger/periodic", "/projector", "/migrations",
		"/internal/loop", "/internal/natsserver", "/internal/pgarray", "/internal/pgserver", "/internal/stream",
		pgx, nats, goPretty,
	}, "the demo is a user of the library, and only the command starts it"},
	{"/cmd/taskledger/internal/movein", []string{"/ledger", "/internal/envelope", "/internal/loop", "/internal/pgerr", pgx, watermill}, "a tool for one move, which no library carries"},
}

// A ban says what may not get into a user's program by way of a package, however indirectly.
type ban struct {
	pkgs   []string
	never  []string
	reason string
}

var library = []string{
	"/ledger", "/ledger/feed", "/ledger/stdsql", "/ledger/periodic", "/outbox",
	"/workers", "/workers/scheduler", "/workers/reconciler", "/workers/operator", "/health", "/health/alarm", "/projector",
}

var bans = []ban{
	{library, []string{"testing", "flag"}, "a library registers no flags and carries no test code"},
	{library, []string{natsServer, "/internal/pgserver", "/internal/natsserver"}, "users run their own servers"},
	{library, []string{goose, "/migrations"}, "who migrates is the operator's choice"},
	{library, []string{cobra, goPretty, yaml}, "only commands need words and tables"},
	{library, []string{watermill, watermillSQL, "/internal/envelope"}, "only outbox/watermill and workers/watermill bring Watermill and its modules"},
	{slices.DeleteFunc(slices.Clone(library), func(pkg string) bool { return pkg == "/health/alarm" }), []string{goMail}, "only alarms send mail"},
	{[]string{"/ledger", "/ledger/feed", "/ledger/stdsql", "/outbox", "/workers", "/projector"}, []string{goCron}, "only periodic tasks have calendars"},
	{[]string{"/workers/scheduler", "/workers/reconciler", "/workers/operator"}, []string{"/workers"}, "a service beside the workers knows tasks by the ledger alone: what runs or operates no handler is not given the pool"},
	{[]string{"/ledger", "/ledger/feed", "/ledger/stdsql", "/ledger/periodic", "/workers/scheduler", "/projector", "/migrations"}, []string{nats}, "PostgreSQL is enough for these"},
}

// listed is what go list tells of a package.
type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

// packages lists the module's packages by their short name.
func packages(t *testing.T) map[string]listed {
	t.Helper()
	touchSources(t)
	command := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,Deps", module+"/...")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	all := make(map[string]listed)
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.Imports) > 0 { // else it holds only tests
			all[short(p.ImportPath)] = p
		}
	}
}

// touchSources looks at every source, so that go test, which cannot know what go list reads,
// does not give a cached answer when one has changed.
func touchSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".git") {
			return filepath.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".go") {
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // removed meanwhile
		t.Fatal(err)
	}
}

// short names a package of ours from the slash on.
func short(path string) string {
	if rest, ok := strings.CutPrefix(path, module+"/"); ok {
		return "/" + rest
	}
	return path
}

func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".") && !strings.HasPrefix(path, "/")
}

// matches reports whether path is what pattern names: a package of ours alone, or a module of
// others with all that is in it.
func matches(path, pattern string) bool {
	if strings.HasPrefix(pattern, "/") {
		below, all := strings.CutSuffix(pattern, "/...")
		return path == below || all && strings.HasPrefix(path, below+"/")
	}
	return path == pattern || strings.HasPrefix(path, pattern+"/")
}

func TestImports(t *testing.T) {
	all := packages(t)
	for name, p := range all {
		i := slices.IndexFunc(rules, func(r rule) bool { return r.pkg == name })
		if i < 0 {
			t.Errorf("%s has no rule: say what it may import, and why", name)
			continue
		}
		for _, path := range p.Imports {
			path = short(path)
			if !isStandard(path) && !slices.ContainsFunc(rules[i].may, func(pattern string) bool { return matches(path, pattern) }) {
				t.Errorf("%s imports %s: %s", name, path, rules[i].reason)
			}
		}
	}
	for _, name := range []string{"/ledger", "/migrations", "/outbox", "/workers", "/projector"} {
		if _, ok := all[name]; !ok {
			t.Errorf("%s was not looked at", name)
		}
	}
}

func TestDependencies(t *testing.T) {
	all := packages(t)
	for _, ban := range bans {
		for _, name := range ban.pkgs {
			if _, found := all[name]; !found {
				t.Errorf("a ban names %s, which does not exist", name)
			}
			for _, path := range all[name].Deps {
				path = short(path)
				if slices.ContainsFunc(ban.never, func(pattern string) bool { return matches(path, pattern) }) {
					t.Errorf("%s depends on %s: %s", name, path, ban.reason)
				}
			}
		}
	}
}

// go.mod requires at most 15 modules directly, each with its reason in a comment.
func TestModules(t *testing.T) {
	const limit = 15
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

// The rules themselves: each of these is allowed or not.
func TestMatches(t *testing.T) {
	for _, test := range []struct {
		path, pattern string
		want          bool
	}{
		{"/ledger", "/ledger", true},
		{"/ledger/stdsql", "/ledger", false},
		{"/ledger/stdsql", "/ledger/...", true},
		{"/ledger", "/ledger/...", true},
		{"/ledgers", "/ledger/...", false},
		{pgx + "/pgxpool", pgx, true},
		{pgx + "x", pgx, false},
		{"testing", "testing", true},
		{"testing/fstest", "testing", true},
	} {
		if got := matches(test.path, test.pattern); got != test.want {
			t.Errorf("matches(%s, %s) = %v", test.path, test.pattern, got)
		}
	}
	for path, want := range map[string]bool{"net/http": true, "/ledger": false, pgx: false, "golang.org/x/sync": false} {
		if isStandard(path) != want {
			t.Errorf("isStandard(%s) = %v", path, !want)
		}
	}
}
