package rules_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	pgxdriver "github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// tables has every table and sequence of the schema with the folder of the package that owns it. Only SQL of that
// folder, and of migrations with that owner in their header, names the table. All other SQL uses the owner's views
// and functions.
var tables = map[string]string{
	"event":              "ledger",
	"event_position_seq": "ledger",
	"asleep_until":       "internal/feed",
	"awaited_until":      "internal/feed",
	"floor":              "internal/feed",
	"kind_limit":         "ledger",
	"limits_set":         "ledger",
	"over_limit":         "ledger",
	"archived_key":       "ledger",
	"archived_until":     "ledger",
	"archive_batch":      "ledger",
	"archive_gap":        "ledger",
	"archive_run":        "ledger",
	"archive_setting":    "ledger",
	"key_life":           "ledger",
	"mortal_key":         "ledger",

	"erasure": "ledger",

	"archive_batch_id_seq": "ledger",
	"archive_run_id_seq":   "ledger",

	"start_limit":        "ledger",
	"limited_kind":       "ledger",
	"start_limits_set":   "ledger",
	"start_limit_change": "ledger",
	"partition_weight":   "ledger",
	"permit":             "ledger",
	"start_token":        "ledger",
	"login":              "ledger",
	"login_id_seq":       "ledger",
	"rejected":           "ledger",
	"setting":            "ledger",
	"timer":              "ledger",
	"cursor":             "internal/feed",
	"incarnation":        "internal/feed",
	"moment":             "internal/feed",
	"task":               "projector",
	"task_count":         "projector",
	"task_tag":           "projector",
	"kind_stats":         "projector",
	"kind_hour":          "projector",
	"illegal_event":      "projector",
	"subscriber_state":   "internal/rebuild",
	"subscriber_parked":  "outbox",
	"parked":             "outbox",
	"lease":              "internal/lease",
	"fence_key":          "internal/lease",
	"remote_session":     "internal/lease",
	"mutex":              "internal/lease",
	"broker_user":        "internal/natsclient",
	"pause":              "internal/operator",
	"schedule":           "ledger/periodic",
	"migration":          "migrations",
	"seal":               "internal/seal",
	"seal_cut":           "internal/seal",
	"seal_rest":          "internal/seal",
	"token":              "internal/api",
}

// administrators are packages whose SQL counts as the owner's: they administer its tables.
var administrators = map[string]string{
	"internal/projection":  "projector",
	"internal/relays":      "outbox",
	"internal/subscribers": "outbox",
	"internal/schedules":   "ledger/periodic",
}

// published are the tables that all SQL may read: the interface of the ledger, and the rows to lock. Writing is the
// owner's.
var published = []string{"event", "mutex"}

// markOwners own the fields of the marks in their cursor rows.
var markOwners = []string{"outbox", "projector", "internal/feed"}

// foreign is SQL that may name a table of another owner.
type foreign struct {
	table, path string // path: a file
	reason      string
}

var foreigners = []foreign{
	{
		table: "incarnation", path: "migrations/00001_ledger.sql",
		reason: "a setting of the session has the same name",
	},
	{
		table: "event_position_seq", path: "internal/feed/sql/window.sql",
		reason: "a window ends at the last position that was drawn",
	},
	{
		table: "event_position_seq", path: "internal/feed/sql/cursor_first.sql",
		reason: "it begins where later events have higher positions",
	},
	{
		table: "event_position_seq", path: "internal/feed/sql/cursor_newest.sql",
		reason: "a cursor must not be ahead of the last position that was drawn",
	},
	{
		table: "event_position_seq", path: "internal/feed/sql/cursor_append.sql",
		reason: "nor must one that is advanced, by a page that was read before a copy was put back",
	},
	{
		table: "event_position_seq", path: "migrations/00002_feed.sql",
		reason: "the view cursors reports such a cursor as one that is not local",
	},
	{
		table: "event_position_seq", path: "internal/feed/sql/floor.sql",
		reason: "a feed refuses a sequence that draws positions in advance",
	},
	{
		table: "event_position_seq", path: "migrations/00015_subscriber.sql",
		reason: "the windows of read_feed are those of the feed",
	},
	{
		table: "mutex", path: "migrations/00018_seal.sql",
		reason: "the row that lock_seal locks",
	},
	{
		table: "mutex", path: "migrations/00015_subscriber.sql",
		reason: "the row that a login locks to add a subscriber",
	},
	{
		table: "mutex", path: "internal/alarm/sql/receiver.sql",
		reason: "the row that a delivery locks",
	},
	{
		table: "event_position_seq", path: "internal/feed/errors.go",
		reason: "the cure that an error names",
	},
	{
		table: "event_position_seq", path: "internal/feed/sql/rebase_sequences.sql",
		reason: "logical replication copies no sequences",
	},
	{
		table: "login_id_seq", path: "internal/feed/sql/rebase_sequences.sql",
		reason: "logical replication copies no sequences",
	},
	{
		table: "setting", path: "internal/feed/sql/installation_renew.sql",
		reason: "a rebase of a copy gives it an installation of its own",
	},
	{
		table: "event", path: "bench/sql/history.sql",
		reason: "a history of millions of events, made as fast as PostgreSQL can",
	},
	{
		table: "cursor", path: "bench/sql/unaudited.sql",
		reason: "the benchmark waits for the audit, which no user does",
	},
	{
		table: "timer", path: "bench/sql/timers_due.sql",
		reason: "the benchmark chooses when its timers are due",
	},
	{
		table: "timer", path: "bench/sql/timers_spread.sql",
		reason: "the benchmark chooses when its timers are due",
	},
	{
		table: "timer", path: "bench/sql/timers_waiting.sql",
		reason: "a million timers without their tasks",
	},
	{
		table: "timer", path: "bench/timers.go",
		reason: "the benchmark vacuums the table after its inserts",
	},
	{
		table: "migration", path: "migrations/00001_ledger.sql",
		reason: "the function schema_version is one of the schema, and goose makes the table",
	},
	{
		table: "task", path: "internal/plantest/plantest.go",
		reason: "plans are tested with the statistics of large tables",
	},
	{
		table: "seal", path: "internal/plantest/plantest.go",
		reason: "plans are tested with the statistics of large tables",
	},
	{
		table: "task_tag", path: "internal/plantest/plantest.go",
		reason: "plans are tested with the statistics of large tables",
	},
	{
		table: "timer", path: "internal/plantest/plantest.go",
		reason: "plans are tested with the statistics of large tables",
	},
}

var (
	tableName  = regexp.MustCompile(`\btaskledger\.([a-z_]+)`)
	writes     = regexp.MustCompile(`(?i)(insert\s+into|update|delete\s+from|truncate|merge\s+into)\s+(only\s+)?$`)
	markField  = regexp.MustCompile(`\bmark\s*(::jsonb?\s*\)?\s*)?#?->`)
	sqlComment = regexp.MustCompile(`(?m)--.*$`)
	header     = regexp.MustCompile(`(?m)^-- Owner: package ([a-z/]+)`)
	looksSQL   = regexp.MustCompile(`(?is)\b(select|insert|update|delete|vacuum|analyze|truncate|from)\s`)
)

// sqlTexts returns the SQL of the repository by file: all .sql files, and the strings of Go files without tests.
func sqlTexts(t *testing.T) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	err := filepath.WalkDir("../..", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if err == nil && strings.HasPrefix(entry.Name(), ".git") {
				return filepath.SkipDir
			}
			return err
		}
		path := filepath.ToSlash(strings.TrimPrefix(file, filepath.FromSlash("../../")))
		switch {
		case path == "migrations/schema.sql": // a dump of all
		case path == "migrations/roles.sql", path == "migrations/limited_worker.go",
			path == "migrations/00012_rights.sql": // the rights on all
		case strings.HasSuffix(path, ".sql"):
			text, err := os.ReadFile(file)
			texts[path] = string(text)
			return err
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(source, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					text, err := strconv.Unquote(literal.Value)
					if err == nil && (looksSQL.MatchString(text) || tableName.MatchString(text)) {
						texts[path] += text + "\n"
					}
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// ownerOf returns the folder of the owner whose SQL a file holds: that in its header for a migration, else the
// folder of its package, "" for no owner.
func ownerOf(path, text string) string {
	if strings.HasPrefix(path, "migrations/0") {
		if match := header.FindStringSubmatch(text); match != nil {
			return match[1]
		}
		return ""
	}
	folder := strings.TrimSuffix(filepath.ToSlash(filepath.Dir(path)), "/sql")
	if owner, ok := administrators[folder]; ok {
		return owner
	}
	for _, owner := range tables {
		if owner == folder {
			return owner
		}
	}
	return ""
}

// foreignTables returns the tables of other owners that a text names.
func foreignTables(owner, text string) []string {
	text = strings.ToLower(strings.ReplaceAll(text, `"`, ""))
	var found []string
	for _, at := range tableName.FindAllStringSubmatchIndex(text, -1) {
		name := text[at[2]:at[3]]
		of, isTable := tables[name]
		isAllowed := of == owner || slices.Contains(published, name) && !writes.MatchString(text[:at[0]])
		if isTable && !isAllowed && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	return found
}

// A table is named only in the SQL of its owner, and a field of a mark only in that of the packages that write marks.
func TestTablesHaveOwners(t *testing.T) {
	t.Parallel()
	texts := sqlTexts(t)
	unused := make(map[foreign]bool)
	for _, f := range foreigners {
		unused[f] = true
	}
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		owner := ownerOf(path, texts[path])
		text := sqlComment.ReplaceAllString(texts[path], "")
		if markField.MatchString(text) && !slices.Contains(markOwners, owner) {
			t.Errorf("%s reads a field of a cursor's mark, which is private to %s: use relay_mark or lingering_place",
				path, markOwners)
		}
	names:
		for _, name := range foreignTables(owner, text) {
			for _, f := range foreigners {
				if f.table == name && f.path == path {
					delete(unused, f)
					continue names
				}
			}
			t.Errorf("%s names table %s, which package %s owns: use a view or a function of that package",
				path, name, tables[name])
		}
	}
	for f := range unused {
		t.Errorf("%s does not name table %s: remove it from foreigners", f.path, f.table)
	}
}

// Every table of the database has an owner, whose migration creates it, and a row in ARCHITECTURE.md.
func TestEveryTableHasAnOwner(t *testing.T) {
	t.Parallel()
	rows, err := ledgertest.Pool(t).Query(t.Context(), `
		select relname::text from pg_class
		 where relnamespace = 'taskledger'::regnamespace and relkind in ('r', 'p', 'm', 'S') order by relname`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgxdriver.CollectRows(rows, pgxdriver.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "migration_id_seq" }) // goose's own
	if owned := slices.Sorted(maps.Keys(tables)); !slices.Equal(names, owned) {
		t.Errorf("the database has the tables\n%v, those with owners are\n%v", names, owned)
	}
	architecture, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := sqlTexts(t)
	for name, owner := range tables {
		if _, err := os.Stat("../../" + owner); err != nil {
			t.Errorf("the owner of table %s: %v", name, err)
		}
		creates := regexp.MustCompile(`create (unlogged )?(table|sequence) taskledger\.` + name + `\b`)
		for path, text := range texts {
			if strings.HasPrefix(path, "migrations/0") && creates.MatchString(text) && ownerOf(path, text) != owner {
				t.Errorf("%s creates table %s and names owner %q, want %s", path, name, ownerOf(path, text), owner)
			}
		}
		row := "| `" + name + "` | `" + owner + "` |"
		if !strings.HasSuffix(name, "_seq") && !strings.Contains(string(architecture), row) {
			t.Errorf("ARCHITECTURE.md has no row %s", row)
		}
	}
}

// The scanner finds tables of other owners, and no other names.
func TestForeignTables(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		owner, sql string
		want       []string
	}{
		{owner: "ledger", sql: "select from taskledger.event e join taskledger.timer t on true", want: nil},
		{owner: "outbox", sql: "select from taskledger.event", want: nil},
		{owner: "outbox", sql: "insert into taskledger.event (xid)", want: []string{"event"}},
		{owner: "outbox", sql: "delete\n  from taskledger.event", want: []string{"event"}},
		{owner: "outbox", sql: "select from taskledger.timer, taskledger.task", want: []string{"timer", "task"}},
		{owner: "outbox", sql: "select from taskledger.tasks t, taskledger_internal.incarnation()", want: nil},
		{owner: "outbox", sql: "select from taskledger.incarnation i", want: []string{"incarnation"}},
		{owner: "outbox", sql: "insert into taskledger.timer(due_at)", want: []string{"timer"}},
	} {
		if got := foreignTables(test.owner, test.sql); !slices.Equal(got, test.want) {
			t.Errorf("%s: %s: %v, want %v", test.owner, test.sql, got, test.want)
		}
	}
	for sql, want := range map[string]bool{
		"c.mark->>'generation'": true, "c.mark -> 'owed'": true, "c.mark::jsonb->'owed'": true,
		"(c.mark::jsonb)->'owed'": true, "c.mark::text": false, "bookmark->x": false,
	} {
		if markField.MatchString(sql) != want {
			t.Errorf("%s: a field of a mark: %v, want %v", sql, !want, want)
		}
	}
}
