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
	xSys       = "golang.org/x/sys"
	xTerm      = "golang.org/x/term"
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
	{"/ledger/ledgertest", []string{"/ledger", "/migrations", "/internal/pgserver", pgx}, "the users' tests need a database and not our broker"},
	{"/outbox", []string{"/ledger", "/ledger/feed", "/internal/pgarray", "/internal/loop", "/internal/pgerr", "/internal/stream", "/internal/envelope", "/internal/fault", pgx, nats, watermill, watermillSQL, xSync}, "relay, workers and projector meet in the ledger and on the stream, never in each other"},
	{"/workers", []string{"/ledger", "/workers/internal/atmostonce", "/internal/pgarray", "/internal/loop", "/internal/pgerr", "/internal/printable", "/internal/stream", "/internal/envelope", "/internal/fault", pgx, nats, watermill, xSync}, "relay, workers and projector meet in the ledger and on the stream, never in each other"},
	{"/workers/scheduler", []string{"/ledger", "/ledger/feed", "/internal/fault", "/internal/loop", "/internal/pgarray", "/internal/pgerr", "/internal/pgquery", pgx}, "a service of its own: it appends what is due, and does not depend on how workers run tasks"},
	{"/workers/reconciler", []string{"/ledger", "/workers/internal/atmostonce", "/internal/loop", "/internal/pgarray", "/internal/pgerr", "/internal/pgquery", "/internal/stream", pgx, nats}, "a service of its own: it compares the ledger with the stream, and does not depend on how workers run tasks"},
	{"/workers/operator", []string{"/ledger", "/internal/pgarray", "/internal/pgerr", "/internal/pgquery", "/internal/printable", "/internal/stream", pgx, nats}, "a service of its own: it changes tasks by appending events, as any other process does"},
	{"/workers/internal/atmostonce", []string{"/ledger"}, "workers and the reconciler recognize the same attempts without importing each other"},
	{"/workers/internal/bundle", []string{"/ledger/...", "/outbox", "/workers", "/workers/scheduler", "/workers/operator", "/projector", "/internal/...", pgx, nats}, "for tests alone: what workers and the services beside it are tested with"},
	{"/workers/workertest", []string{"/ledger", "/internal/pgarray", "/workers", "/internal/stream", "/internal/natsserver", "/internal/fault", pgx, nats}, "the users' tests need a broker, and their production code does not get it"},
	{"/workers/periodic", []string{"/ledger", "/internal/pgarray", "/internal/loop", "/internal/pgerr", "/internal/fault", pgx, goCron}, "what is due is enqueued, and who works on it is another matter"},
	{"/workers/alarm", []string{"/ledger", "/internal/loop", "/internal/pgerr", "/internal/printable", "/workers/scheduler", "/workers/operator", "/workers/periodic", "/internal/fault", pgx, goMail}, "what is wrong is found in the database; lags are told to it"},
	{"/projector", []string{"/ledger", "/ledger/feed", "/internal/pgarray", "/internal/loop", "/internal/pgerr", "/internal/fault", pgx, xSync}, "projections read the ledger, and work without a broker"},
	{"/migrations", []string{"/ledger", pgx, goose}, "the schema is made before there is a ledger; only the error for its absence is shared"},
	{"/internal/plantest", []string{pgx}, "for tests alone"},
	{"/internal/fault", nil, "crash points are in everybody's code"},
	{"/internal/pgerr", []string{pgx}, "what an error of the database means is defined once"},
	{"/internal/pgarray", nil, "array literals are built in one way"},
	{"/internal/tracestate", nil, "a format of W3C, and no more"},
	{"/internal/pgquery", []string{pgx}, "statements of one row are run in one way"},
	{"/internal/loop", nil, "services wait, back off and stop in one way"},
	{"/internal/printable", nil, "text of others is made harmless in one way"},
	{"/internal/reserve", []string{xSys}, "ports and locks know nothing of who wants them"},
	{"/internal/pgserver", []string{"/internal/reserve", pgx, xSys}, "a server knows nothing of what is stored in it"},
	{"/internal/natsserver", []string{"/internal/reserve", natsServer}, "a server knows nothing of what is sent through it"},
	{"/internal/stream", []string{"/ledger", "/internal/tracestate", nats}, "the form of messages, shared by those who send and who receive"},
	{"/internal/envelope", []string{"/ledger", "/internal/stream", watermill}, "the form of Watermill's messages, shared by those who send and who receive"},
	{"/internal/embedded", []string{"/internal/pgerr", "/internal/pgserver", "/internal/natsserver", "/internal/reserve", "/migrations", pgx, nats, xSys}, "servers for who has none; the work is others'"},
	{"/internal/bench", []string{"/ledger/...", "/outbox", "/workers/...", "/projector", "/migrations", "/internal/...", pgx, nats, goPretty, xSync, xSys, xTerm}, "a user of everything but the command line"},
	{"/internal/demo", []string{"/ledger/...", "/outbox", "/workers/...", "/projector", "/migrations", "/internal/...", pgx, nats, goPretty, xSync, xSys, xTerm}, "a user of everything but the command line"},
	{"/cmd/taskledger", []string{"/ledger/...", "/outbox", "/workers/...", "/projector", "/migrations", "/internal/...", pgx, nats, cobra, pflag, goPretty, yaml, xSync, xSys, xTerm}, "where all meet"},
}

// A ban says what may not get into a user's program by way of a package, however indirectly.
type ban struct {
	pkgs   []string
	never  []string
	reason string
}

var library = []string{"/ledger", "/ledger/feed", "/ledger/stdsql", "/outbox", "/workers", "/workers/scheduler", "/workers/reconciler", "/workers/operator", "/workers/periodic", "/workers/alarm", "/projector"}

var bans = []ban{
	{library, []string{"testing", "flag"}, "a library registers no flags and carries no test code"},
	{library, []string{natsServer, "/internal/pgserver", "/internal/natsserver"}, "users run their own servers"},
	{library, []string{goose, "/migrations"}, "who migrates is the operator's choice"},
	{library, []string{cobra, goPretty, yaml}, "only commands need words and tables"},
	{[]string{"/workers/scheduler", "/workers/reconciler", "/workers/operator"}, []string{"/workers"}, "a service beside the workers knows tasks by the ledger alone: what runs or operates no handler is not given the pool"},
	{[]string{"/ledger", "/ledger/feed", "/ledger/stdsql", "/workers/scheduler", "/workers/periodic", "/projector", "/migrations"}, []string{nats}, "PostgreSQL is enough for these"},
	{[]string{"/ledger", "/ledger/feed", "/ledger/stdsql", "/workers/scheduler", "/workers/periodic", "/projector", "/migrations"}, []string{watermill}, "who does without Watermill is not given it"},
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
			for _, path := range all[name].Deps {
				path = short(path)
				if slices.ContainsFunc(ban.never, func(pattern string) bool { return matches(path, pattern) }) {
					t.Errorf("%s depends on %s: %s", name, path, ban.reason)
				}
			}
		}
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
