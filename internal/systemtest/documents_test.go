package systemtest_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// block is a fenced block of a document.
type block struct {
	doc, language, code string
}

// place names the blocks of one language in one document.
func (b block) place() string { return b.doc + " " + b.language }

// otherBlocks names what runs the blocks that [TestSQLOfTheDocuments] and [TestGoOfTheDocuments] do not run: a test, or
// the reason why they cannot run.
var otherBlocks = map[string]string{
	"ARCHITECTURE.md ":            "a picture",
	"README.md go":                "TestReadmeShowsTheExample",
	"README.md sh":                "TestReadmeCommands",
	"docs/alarms.md json":         "an example of a request that the product sends",
	"docs/alarms.md yaml":         "TestAlarmsInDocs",
	"docs/audit.md sh":            "TestAuditCommands",
	"docs/audit.md yaml":          "TestSealFileInDocs",
	"docs/failure.md json":        "an example of an event's data",
	"docs/from-river.md go":       "TestDocumentShowsTheProgram",
	"docs/http.md sh":             "TestExamplesOfTheDocument",
	"docs/languages.md js":        "TestClientOfNode",
	"docs/languages.md python":    "TestClientOfPython",
	"docs/languages.md sql":       "TestDocumentedSQL",
	"docs/periodic.md yaml":       "TestScheduleFileOfExamples",
	"docs/tutorial.md sh":         "TestReadmeCommands",
	"docs/watermill.md go":        "TestCodeOfTheDocument",
	"docs/webhooks.md json":       "an example of a request that the product sends",
	"docs/webhooks.md yaml":       "TestWebhooksInDocs",
	"docs/work-over-http.md json": "an example of an answer",
	"docs/work-over-http.md sh":   "TestWorkInTheDocument",
}

var fenced = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// documentBlocks returns the blocks of all documents, in their order.
func documentBlocks(t *testing.T) (blocks []block) {
	t.Helper()
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"} {
		docs = append(docs, "../../"+name)
	}
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range fenced.FindAllStringSubmatch(string(text), -1) {
			blocks = append(blocks, block{doc: strings.TrimPrefix(doc, "../../"), language: m[1], code: m[2]})
		}
	}
	return blocks
}

// Each block of a document runs in a test, or has a reason not to. The test reads the document.
func TestBlocksOfTheDocumentsRun(t *testing.T) {
	t.Parallel()
	tests := sourcesOfTests(t)
	places := make(map[string]bool)
	for _, b := range documentBlocks(t) {
		if _, isOther := otherBlocks[b.place()]; isOther || places[b.place()] {
			places[b.place()] = true
			continue
		}
		places[b.place()] = true
		if b.language == "sql" && sqlRoles[b.doc] != nil || b.language == "go" && goDocuments[b.doc] != nil {
			continue
		}
		t.Errorf("%s: no test runs the blocks in %q", b.doc, b.language)
	}
	for place, how := range otherBlocks {
		if !places[place] {
			t.Errorf("there is no block %q", place)
		}
		doc, _, _ := strings.Cut(place, " ")
		if strings.HasPrefix(how, "Test") && !strings.Contains(tests[how], filepath.Base(doc)) {
			t.Errorf("%s: the file of %s does not read it", place, how)
		}
	}
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// sourcesOfTests returns the text of the file of each test function.
func sourcesOfTests(t *testing.T) map[string]string {
	t.Helper()
	tests := make(map[string]string)
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
			tests[m[1]] = string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

// sqlRoles has the roles that the SQL of a document needs.
var sqlRoles = map[string][]string{
	"README.md":           {"producer"},
	"docs/events.md":      {"producer"},
	"docs/failure.md":     {"producer"},
	"docs/keys.md":        {"producer"},
	"docs/operations.md":  {ledgertest.Owner},
	"docs/subscribers.md": {"subscriber"},
	"docs/time.md":        {"producer"},
	"docs/waiting.md":     {"producer"},
}

// The SQL of each document works in its order, with the least role.
func TestSQLOfTheDocuments(t *testing.T) {
	t.Parallel()
	statements := make(map[string][]string)
	for _, b := range documentBlocks(t) {
		if b.language == "sql" && sqlRoles[b.doc] != nil {
			statements[b.doc] = append(statements[b.doc], b.code)
		}
	}
	for _, doc := range slices.Sorted(maps.Keys(sqlRoles)) {
		t.Run(filepath.Base(doc), func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t)
			for _, kind := range []ledger.Kind{"sales.sum", "stock.count"} { // the predecessors in waiting.md
				ledgertest.Enqueue(t, pool, ledger.Key{Kind: kind, BizID: "2026-11"}, `{}`)
			}
			conn, err := pgx.Connect(t.Context(), ledgertest.URLAs(t, pool.Config().ConnString(), sqlRoles[doc]...))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			// Logins are the server's: the transaction is rolled back.
			if _, err := conn.Exec(t.Context(), "begin"); err != nil {
				t.Fatal(err)
			}
			prefix := strings.TrimSuffix(ledgertest.As(t, pool, "producer").Config().ConnConfig.User, "producer")
			if len(statements[doc]) == 0 {
				t.Error("the document has no SQL")
			}
			for _, code := range statements[doc] {
				code = strings.ReplaceAll(code, "shop_", prefix)
				if _, err := conn.PgConn().Exec(t.Context(), code).ReadAll(); err != nil {
					t.Errorf("%s: %v", code, err)
				}
			}
		})
	}
}

// fragment is Go around a block that is no program.
type fragment struct {
	declarations string // the names that the document leaves to the reader
	parameters   string
	used         string // variables that the block declares last
}

const enqueues = "ctx context.Context, tx pgx.Tx"

// goDocuments has the blocks of Go in their order.
var goDocuments = map[string][]*fragment{
	"docs/cookbook.md": {
		{
			parameters: "partner ledger.TypedKind[int], call func(context.Context, *workers.Job, int) error", used: "r",
		},
		{
			parameters: "client *taskledger.Client, mail, report ledger.TypedKind[int], " +
				"sendMail, makeReport func(context.Context, pgx.Tx, *workers.Job, int) error",
			used: "mails, reports, err",
		},
		{
			declarations: "type Move struct{ Points int }",
			parameters:   enqueues + ", move ledger.TypedKind[Move]", used: "err",
		},
	},
	"docs/failure.md": {
		{
			declarations: "type Coupon struct{ Cents int }",
			parameters:   enqueues + ", coupons ledger.TypedKind[Coupon]", used: "err",
		},
	},
	"docs/metrics.md": {
		{parameters: "ctx context.Context", used: "client, err"},
	},
	"docs/operations.md": {
		{parameters: "client *taskledger.Client", used: "err"},
	},
	"docs/subscribers.md": {
		{
			declarations: "func insertMails(context.Context, pgx.Tx, []ledger.Event) error { return nil }",
			parameters:   "ctx context.Context, pool *pgxpool.Pool", used: "err",
		},
		{
			declarations: "func count(context.Context, pgx.Tx, []ledger.Event) error { return nil }",
			used:         "couponsPerDay",
		},
	},
	"docs/time.md": {
		{parameters: enqueues + ", key ledger.Key, args json.RawMessage, christmas time.Time"},
	},
	"docs/overload.md": {
		{declarations: "type Mail struct{ To string }", parameters: enqueues, used: "low, err"},
	},
	"docs/keys.md": {{
		declarations: "type Customer struct{ ID int }; type Product struct{ ID, Price int }; " +
			"type Order struct{ ID int }",
		parameters: enqueues + ", coupon ledger.TypedKind[Order], " +
			"resync ledger.TypedKind[Customer], index ledger.TypedKind[Product]", used: "err",
	}},
	"docs/waiting.md": {
		{
			declarations: "type Report struct{}",
			parameters:   "ctx context.Context, reports ledger.TypedKind[Report]", used: "report, err",
		},
		{
			declarations: "type Report struct{}; type Total struct{}",
			parameters: enqueues + ", reports ledger.TypedKind[Report], " +
				"sales, stock ledger.TypedKind[Total]", used: "err",
		},
		{
			declarations: "type Total struct{}",
			parameters:   "ctx context.Context, job *workers.Job", used: "total, err",
		},
	},
	"docs/webhooks.md": {
		{parameters: "r *http.Request, body []byte, secret string", used: "id, err"},
	},
}

// goImports are the imports of fragments, by the name of the package.
var goImports = map[string]string{
	"context": "context", "json": "encoding/json", "time": "time", "http": "net/http",
	"nats": "github.com/nats-io/nats.go",
	"pgx":  "github.com/jackc/pgx/v5", "pgxpool": "github.com/jackc/pgx/v5/pgxpool",
	"taskledger": module, "feed": module + "/ledger/feed", "ledger": module + "/ledger", "metrics": module + "/metrics",
	"outbox": module + "/outbox", "webhook": module + "/webhook",
	"workers": module + "/workers",
}

const module = "github.com/taskledger/taskledger"

// program returns a program of a block.
func (f *fragment) program(code string) string {
	body := fmt.Sprintf("%s\nfunc block(%s) {\n%s", f.declarations, f.parameters, strings.ReplaceAll(code, "…\n", ""))
	if n := strings.Count(f.used, ",") + 1; f.used != "" {
		body += strings.Repeat("_, ", n-1) + "_ = " + f.used + "\n"
	}
	imports := ""
	for _, name := range slices.Sorted(maps.Keys(goImports)) {
		if regexp.MustCompile(`\b` + name + `\.[A-Z]`).MatchString(body) {
			imports += fmt.Sprintf("import %s %q\n", name, goImports[name])
		}
	}
	return "package main\n" + imports + body + "}\nfunc main() {}\n"
}

// The Go of each document compiles.
func TestGoOfTheDocuments(t *testing.T) {
	t.Parallel()
	seen := make(map[string]int)
	for _, b := range documentBlocks(t) {
		fragments := goDocuments[b.doc]
		if b.language != "go" || fragments == nil {
			continue
		}
		n := seen[b.doc]
		seen[b.doc]++
		if n >= len(fragments) {
			t.Errorf("%s has more than %d blocks of Go", b.doc, len(fragments))
			continue
		}
		file := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(file, []byte(fragments[n].program(b.code)), 0o600); err != nil {
			t.Fatal(err)
		}
		vet := exec.CommandContext(t.Context(), "go", "vet", file)
		vet.Dir = "../.." // the product's module, which has what the fragments import
		if out, err := vet.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s\n%s", b.doc, err, out, fragments[n].program(b.code))
		}
	}
	for doc, fragments := range goDocuments {
		if seen[doc] != len(fragments) {
			t.Errorf("%s has %d blocks of Go, want %d", doc, seen[doc], len(fragments))
		}
	}
}

// The program examples/tables counts coupons.
func TestProgramWithTables(t *testing.T) {
	t.Parallel()
	program := buildExample(t.Context(), t, "tables")
	d := newLedger(t)
	db := ledgertest.As(t, d.db, "relay", "subscriber")
	ledgertest.AllowSchemas(t, db)
	coupon := ledger.Key{Kind: "coupon.send", BizID: "A-1"}
	ledgertest.Enqueue(t, d.db, coupon, `{"campaign": "autumn"}`)
	success := ledger.AppendRequest{Key: coupon, Expected: 1, Type: ledger.EventSucceeded, Actor: "test",
		Data: []byte(`{"result": {"cents": 500}}`)}
	if _, err := ledger.Append(t.Context(), d.db, success); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	address := ledgertest.URLAs(t, d.db.Config().ConnString(), "relay", "subscriber")
	cmd.Env = append(os.Environ(), "DATABASE_URL="+address)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the program ended: %v", err)
		}
	}()
	d.await("the coupon in the table", func() bool {
		var cents int
		err := db.QueryRow(t.Context(), `select cents from coupons.per_day where campaign = 'autumn'`).Scan(&cents)
		return err == nil && cents == 500
	})
}
