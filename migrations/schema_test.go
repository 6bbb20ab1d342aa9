package migrations_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

var update = flag.Bool("update", false, "rewrite schema.sql and testdata")

const schemaFile = "schema.sql"

// schema.sql shows in a review how a migration changes the schema as a whole.
func TestSchemaIsTheOneCommitted(t *testing.T) {
	t.Parallel()
	address := ledgertest.URL(t, ledgertest.Owner)
	header := fmt.Sprintf("-- The schema that the migrations make, as pg_dump of PostgreSQL %s prints it.\n"+
		"-- For review only; go test ./migrations -update rewrites it.\n\n", majorVersion(t, address))
	got := header + schemaOf(t, address)
	if *update {
		if err := os.WriteFile(schemaFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if firstLine(string(committed)) != firstLine(got) {
		t.Skipf("another version of pg_dump prints the schema differently: %q", firstLine(string(committed)))
	}
	if diff := difference.Of(string(committed), got); diff != "" {
		t.Errorf("schema.sql differs; to accept: go test ./migrations -update (-committed +migrated):\n%s", diff)
	}
}

// A user who lists tables, functions or types in psql reads what each is for.
func TestObjectsHaveComments(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	rows, err := pool.Query(t.Context(), `
		select 'schema ' || n.nspname, obj_description(n.oid, 'pg_namespace')
		  from pg_namespace n where n.nspname in ('taskledger', 'taskledger_internal')
		 union all
		select 'relation ' || c.oid::regclass, obj_description(c.oid, 'pg_class')
		  from pg_class c
		 where c.relnamespace::regnamespace::text in ('taskledger', 'taskledger_internal')
		   and c.relkind in ('r', 'v', 'm', 'p', 'S')
		   and not exists (
		       select from pg_depend d
		        where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'i') -- identity
		 union all
		select 'type ' || t.oid::regtype, obj_description(t.oid, 'pg_type')
		  from pg_type t where t.typnamespace = 'taskledger'::regnamespace and t.typtype = 'e'
		 union all
		select 'function ' || p.oid::regprocedure, obj_description(p.oid, 'pg_proc')
		  from pg_proc p where p.pronamespace::regnamespace::text in ('taskledger', 'taskledger_internal')`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var objects int
	for rows.Next() {
		var object string
		var comment *string
		if err := rows.Scan(&object, &comment); err != nil {
			t.Fatal(err)
		}
		objects++
		if comment == nil || !strings.HasSuffix(*comment, ".") {
			t.Errorf("%s has no comment that ends with a full stop", object)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if objects < 30 {
		t.Errorf("the query found only %d objects", objects)
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// schemaOf dumps the schemas without the version table.
func schemaOf(t *testing.T, address string) string {
	t.Helper()
	return dump(t, address,
		"--schema=taskledger", "--schema=taskledger_internal", "--exclude-table=taskledger.migration*")
}

// testPolicy is a policy of the roles of ledgertest, or its comment.
var testPolicy = regexp.MustCompile(`(?s)(CREATE|COMMENT ON) POLICY taskledger_test_.*?;\n`)

// dump returns the definitions in a database, without the lines that differ from run to run.
func dump(t *testing.T, address string, options ...string) string {
	t.Helper()
	options = append(options, "--schema-only", "--no-owner", "--no-privileges", "--dbname="+address)
	command := exec.Command(pgDump(t, address), options...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("pg_dump: %v\n%s", err, stderr.String())
	}
	var b strings.Builder
	blank := true
	schema := testPolicy.ReplaceAllString(string(out), "")
	for line := range strings.Lines(schema) {
		switch {
		case strings.HasPrefix(line, "--"), strings.HasPrefix(line, `\`), strings.HasPrefix(line, "SET "),
			strings.HasPrefix(line, "SELECT pg_catalog.set_config"):
			continue
		case line == "\n" && blank:
			continue
		}
		blank = line == "\n"
		b.WriteString(line)
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// pgDump returns the path of the pg_dump that came with the server, or else of one in PATH. It skips the test
// without a pg_dump that is at least as new as the server.
func pgDump(t *testing.T, address string) string {
	t.Helper()
	dir := queryText(t, address, "select setting from pg_config where name = 'BINDIR'")
	path := filepath.Join(dir, "pg_dump")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	path, err := exec.LookPath("pg_dump")
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("there is no pg_dump, beside the server or in PATH")
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	server, client := majorVersion(t, address), strings.Fields(string(out))[2]
	if number := func(s string) int {
		n, _ := strconv.Atoi(strings.Split(s, ".")[0])
		return n
	}; number(client) < number(server) {
		t.Skipf("there is no pg_dump beside the server, version %s, and %s is older: %s", server, path, client)
	}
	return path
}

func majorVersion(t *testing.T, address string) string {
	t.Helper()
	return queryText(t, address, "select current_setting('server_version_num')::int / 10000 || ''")
}

// queryText returns the one value that a query returns.
func queryText(t *testing.T, address, query string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context()) // it only reads
	var text string
	if err := conn.QueryRow(t.Context(), query).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}
