package systemtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/conformance"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// clientsServer is a taskledger serve with a database, as programs in other languages find it.
type clientsServer struct {
	t        *testing.T
	database string
	env      []string
}

// startForClients starts serve, with its own NATS server, and makes a token.
func startForClients(t *testing.T) clientsServer {
	t.Helper()
	binary := buildCommand(t)
	pool := ledgertest.Pool(t, ledgertest.App, "operator")
	archiveOrder(t, pool)
	owner := ledgertest.URLAs(t, pool.Config().ConnString(), ledgertest.Owner)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	serve := exec.Command(binary, "serve", "--listen", address, "--database-url", owner, "--data-dir", t.TempDir())
	serve.Env = append(os.Environ(), "DATABASE_URL="+owner, "NATS_URL=")
	serve.Stdout, serve.Stderr = t.Output(), t.Output()
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = serve.Process.Signal(syscall.SIGTERM)
		if err := serve.Wait(); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	token := exec.CommandContext(t.Context(), binary, "create", "token", "clients", "--role", "operator")
	token.Env = serve.Env
	secret, err := token.Output()
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		answer, err := http.Get("http://" + address + "/readyz")
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("serve is not ready: %v", err)
		}
	}
	program := ledgertest.URLAs(t, pool.Config().ConnString(), ledgertest.App)
	return clientsServer{t: t, database: program, env: append(os.Environ(), "DATABASE_URL="+program,
		"TASKLEDGER_URL=http://"+address, "TASKLEDGER_TOKEN="+strings.TrimSpace(string(secret)))}
}

// archiveOrder archives the task archived.order/A-1, which the packages' tests enqueue again.
func archiveOrder(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	key := ledgertest.Key(t, "archived.order/A-1")
	ledgertest.Enqueue(t, pool, key, `{"cents":500}`)
	ledgertest.Append(t, pool, key, ledger.EventStarted, ledger.EventSucceeded)
	b := servicetest.NewDatabaseOn(t, pool)
	b.Project()
	if r, err := archiver.Run(t.Context(), b.As("archiver"), archiver.Options{}); err != nil || r.Tasks != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
}

// run runs a command in a directory until it ends.
func (s clientsServer) run(dir string, env []string, command ...string) {
	s.t.Helper()
	if err := s.try(dir, env, command...); err != nil {
		s.t.Fatal(err)
	}
}

func (s clientsServer) try(dir string, env []string, command ...string) error {
	cmd := exec.CommandContext(s.t.Context(), command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(slices.Clone(s.env), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, out)
	}
	return nil
}

// runEach runs a command once for each file that matches a pattern, all at once: most of the time the tests in a file
// wait. The command's last argument is the file's name.
func (s clientsServer) runEach(dir, tests, pattern string, env []string, command ...string) {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, tests, pattern))
	if err != nil || len(files) < 5 {
		s.t.Fatalf("%s: %v, %v, want at least 5 files", pattern, files, err)
	}
	errs := make([]error, len(files))
	var group sync.WaitGroup
	for i, file := range files {
		group.Go(func() { errs[i] = s.try(dir, env, append(slices.Clone(command), filepath.Base(file))...) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		s.t.Fatal(err)
	}
}

// copyTracked copies the files of a package, without what has been built or installed in its directory.
func copyTracked(t *testing.T, from string) (to string) {
	t.Helper()
	to = t.TempDir()
	names := []string{"src", "test", "tests", "conformance", "examples", "package.json", "tsconfig.json",
		"pyproject.toml", "README.md"}
	for _, name := range names {
		path := filepath.Join(from, name)
		info, err := os.Stat(path)
		switch {
		case err != nil:
		case info.IsDir():
			err = os.CopyFS(filepath.Join(to, name), os.DirFS(path))
		default:
			var text []byte
			if text, err = os.ReadFile(path); err == nil {
				err = os.WriteFile(filepath.Join(to, name), text, 0o600)
			}
		}
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return to
}

// The package of Node is built, and installed from its file in a program's directory, where its tests and the listings
// of README.md, docs/languages.md and examples/work run.
func TestClientOfNode(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed")
		}
	}
	const isNew = "const [a, b] = process.versions.node.split('.'); process.exit(a * 100 + +b < 2003 ? 1 : 0)"
	if err := exec.CommandContext(t.Context(), "node", "-e", isNew).Run(); err != nil {
		t.Skip("node is older than 20.3")
	}
	source, program := copyTracked(t, "../../clients/node"), t.TempDir()
	quiet := []string{"--no-package-lock", "--no-audit", "--no-fund", "--prefer-offline"}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", append([]string{"install"}, quiet...)...)
	install.Dir = source
	if out, err := install.CombinedOutput(); err != nil {
		if isUnreachable(out) {
			t.Skipf("npm's registry cannot be reached: %s", out)
		}
		t.Fatalf("%v: %s", err, out)
	}
	s := startForClients(t)
	s.run(source, nil, "npm", "pack")
	archive, err := filepath.Glob(filepath.Join(source, "*.tgz"))
	if err != nil || len(archive) != 1 {
		t.Fatalf("npm pack: %v, %v", archive, err)
	}
	var about struct{ DevDependencies map[string]string }
	text, err := os.ReadFile(filepath.Join(source, "package.json"))
	if err == nil {
		err = json.Unmarshal(text, &about)
	}
	if err != nil {
		t.Fatal(err)
	}
	packages := append([]string{"npm", "install", archive[0]}, quiet...)
	for _, name := range slices.Sorted(maps.Keys(about.DevDependencies)) {
		packages = append(packages, name+"@"+about.DevDependencies[name])
	}
	if err := os.WriteFile(filepath.Join(program, "package.json"), []byte(`{"type": "module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run(program, nil, packages...)
	for _, name := range []string{"test", "conformance", "examples"} {
		if err := os.CopyFS(filepath.Join(program, name), os.DirFS(filepath.Join(source, name))); err != nil {
			t.Fatal(err)
		}
	}
	conform(t, program, nil, "node", "conformance/worker.mjs")
	s.runEach(program, "test", "*.test.js", nil, "sh", "-c", `exec node --test "test/$0"`)
	// The types of the package, as a program sees them.
	s.run(program, nil, "npx", "tsc", "--noEmit", "--strict", "--module", "nodenext", "--types", "node",
		"--target", "es2022", "test/types.ts")
	for _, doc := range []string{"clients/node/README.md", "docs/languages.md", "examples/work/http.mjs"} {
		s.runListings(doc, "js", program, nil, "node", ".mjs")
	}
	s.run(program, nil, "node", "examples/shop.mjs")
}

// isUnreachable reports whether npm's output means that its registry cannot be reached.
func isUnreachable(output []byte) bool {
	return slices.ContainsFunc([]string{"ENOTFOUND", "ECONNREFUSED", "ETIMEDOUT", "EAI_AGAIN"}, func(code string) bool {
		return bytes.Contains(output, []byte(code))
	})
}

// python returns a Python with the drivers of Debian's packages.
func python(t *testing.T) string {
	t.Helper()
	const modules = "import psycopg, psycopg_pool, psycopg2, asyncpg, sqlalchemy, django, setuptools, wheel, pip"
	var reasons []string
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		out, err := exec.CommandContext(t.Context(), name, "-W", "ignore", "-c", modules).CombinedOutput()
		if err == nil {
			return name
		}
		reasons = append(reasons, fmt.Sprintf("%s: %v: %s", name, err, out))
	}
	t.Skip(strings.Join(reasons, "\n"))
	return ""
}

// openTelemetry fetches OpenTelemetry's modules for Python, and returns their directory.
func openTelemetry(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "../../.ci/otel-debian").Output()
	return strings.TrimSpace(string(out)), err
}

// The package of Python is built as a wheel, and installed from its file, where its tests and the listings of
// README.md, docs/languages.md and examples/work run.
func TestClientOfPython(t *testing.T) {
	t.Parallel()
	name := python(t)
	var modules string
	var modulesErr error
	fetched := make(chan struct{})
	go func() { modules, modulesErr = openTelemetry(t.Context()); close(fetched) }()
	s := startForClients(t)
	source, installed := copyTracked(t, "../../clients/python"), t.TempDir()
	s.run(source, nil, name, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index",
		"--disable-pip-version-check", "-w", installed, ".")
	wheel, err := filepath.Glob(filepath.Join(installed, "taskledger-*.whl"))
	if err != nil || len(wheel) != 1 {
		t.Fatalf("pip wheel: %v, %v", wheel, err)
	}
	s.run(source, nil, name, "-m", "pip", "install", "--no-deps", "--no-index", "--disable-pip-version-check",
		"--target", installed, wheel[0])
	path := []string{"PYTHONPATH=" + installed}
	conform(t, source, path, name, "conformance/worker.py")
	s.runEach(source, "tests", "test_*.py", path,
		name, "-W", "ignore", "-m", "unittest", "discover", "-t", ".", "-s", "tests", "-p")
	if <-fetched; modulesErr != nil {
		t.Logf("spans are not tested: .ci/otel-debian: %v", modulesErr)
	} else {
		s.run(source, []string{path[0] + ":" + modules}, name, "-m", "unittest", "tests.test_telemetry")
	}
	if exec.CommandContext(t.Context(), name, "-c", "import mypy").Run() == nil {
		s.run(source, path, name, "-m", "mypy")
	}
	for _, doc := range []string{
		"clients/python/README.md", "docs/languages.md", "examples/work/http.py", "examples/work/sql.py",
	} {
		s.runListings(doc, "python", t.TempDir(), path, name, ".py")
	}
	s.run(source, path, name, "examples/shop.py")
}

// conform checks a package's worker against the work protocol, with the suite that any client can run, next to the rest
// of the test.
func conform(t *testing.T, dir string, env []string, command ...string) {
	ctx, ended := context.WithoutCancel(t.Context()), make(chan struct{}) // it ends before the test does
	go func() {
		defer close(ended)
		checkConformance(ctx, t, dir, env, command)
	}()
	t.Cleanup(func() { <-ended })
}

func checkConformance(ctx context.Context, t *testing.T, dir string, env, command []string) {
	results := conformance.Run(ctx, conformance.Config{Command: command, Dir: dir, Env: env})
	if len(results) < 20 {
		t.Errorf("%d scenarios ran, want at least 20", len(results))
	}
	for _, r := range results {
		if len(r.Faults) > 0 {
			t.Errorf("%s: %s\n%s", r.Scenario, strings.Join(r.Faults, "; "), r.Log)
		}
	}
}

// The workers over HTTP in examples/work, without a package, pass the suite. Their handler is replaced.
func TestClientListings(t *testing.T) {
	t.Parallel()
	for _, l := range []struct{ extension, command, handler string }{
		{extension: ".py", command: "python3", handler: `(?s)def work\(.*?\n\n`},
		{extension: ".mjs", command: "node", handler: `(?s)async function work\(.*?\n\n`},
	} {
		t.Run(l.command, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(l.command); err != nil {
				t.Skip(l.command + " is not installed")
			}
			work, err := os.ReadFile("testdata/conformance_work" + l.extension)
			if err != nil {
				t.Fatal(err)
			}
			handler := regexp.MustCompile(l.handler)
			listing := string(readExample(t, "work/http"+l.extension))
			if !handler.MatchString(listing) {
				t.Fatal("the worker has no function work")
			}
			listing = handler.ReplaceAllLiteralString(listing, string(work)+"\n")
			listing = strings.Replace(listing, `"coupon.print"`, `"conformance.task"`, 1)
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "listing"+l.extension), []byte(listing), 0o600); err != nil {
				t.Fatal(err)
			}
			conform(t, dir, nil, l.command, "listing"+l.extension)
		})
	}
}

var listedKind = regexp.MustCompile(`(?:handle\(|KIND, ME = |const kind = )"([a-z.]+)"`)

// runListings runs the listings of a document in one language, as a reader copies them, or an example. A worker gets a
// task, and must finish it and end at SIGTERM.
func (s clientsServer) runListings(doc, language, dir string, env []string, command, extension string) {
	s.t.Helper()
	text, err := os.ReadFile("../../" + doc)
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := pgx.Connect(s.t.Context(), s.database)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	_, err = conn.Exec(s.t.Context(), "create table if not exists coupon (order_no text, cents integer); "+
		"create table if not exists coupon_sent (order_no text, cents integer)")
	if err != nil {
		s.t.Fatal(err)
	}
	n := 0
	listings := [][]string{{"", language, string(text)}}
	if filepath.Ext(doc) == ".md" {
		listings = fenced.FindAllStringSubmatch(string(text), -1)
	}
	for _, m := range listings {
		if m[1] != language {
			continue
		}
		n++
		name := fmt.Sprintf("%s-%d%s", strings.ReplaceAll(doc, "/", "-"), n, extension)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(m[2]), 0o600); err != nil {
			s.t.Fatal(err)
		}
		kind := listedKind.FindStringSubmatch(m[2])
		if kind == nil {
			s.run(dir, env, command, name)
			continue
		}
		_, err := conn.Exec(s.t.Context(), `select from taskledger.enqueue($1, $2, '{"cents": 500, "to": "ada"}')`,
			kind[1], name)
		if err != nil {
			s.t.Fatal(err)
		}
		var output bytes.Buffer
		cmd := exec.Command(command, name)
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(slices.Clone(s.env), env...), &output, &output
		if err := cmd.Start(); err != nil {
			s.t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		s.awaitSuccess(conn, kind[1], name, ended, &output)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil && strings.Contains(m[2], "Worker") {
			s.t.Errorf("%s: %v\n%s", name, err, &output)
		}
	}
	if n == 0 {
		s.t.Errorf("%s has no listing in %s", doc, language)
	}
}

// awaitSuccess waits until a task has succeeded, while the worker runs.
func (s clientsServer) awaitSuccess(
	conn *pgx.Conn, kind, bizID string, ended <-chan error, output fmt.Stringer,
) {
	s.t.Helper()
	const succeeded = `select exists (select from taskledger.event
                                       where kind = $1 and biz_id = $2 and type::text = 'succeeded')`
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var is bool
		if err := conn.QueryRow(s.t.Context(), succeeded, kind, bizID).Scan(&is); err != nil {
			s.t.Fatal(err)
		}
		if is {
			return
		}
		select {
		case err := <-ended:
			s.t.Fatalf("%s ended before its task: %v\n%s", bizID, err, output)
		default:
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s did not finish its task\n%s", bizID, output)
		}
	}
}
