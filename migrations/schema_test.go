package migrations_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

var update = flag.Bool("update", false, "rewrite schema.sql")

const schemaFile = "schema.sql"

// schema.sql shows in every review what a migration does to the schema as a whole.
func TestSchemaIsTheOneCommitted(t *testing.T) {
	t.Parallel()
	address := ledgertest.URL(t)
	header := fmt.Sprintf("-- The schema that the migrations make, as pg_dump of PostgreSQL %s shows it.\n"+
		"-- Nothing reads this file but a test and people; go test ./migrations -update rewrites it.\n\n", majorVersion(t, address))
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
		t.Skipf("another version of pg_dump words it differently: %q", firstLine(string(committed)))
	}
	if diff := cmp.Diff(string(committed), got); diff != "" {
		t.Errorf("if that is intended: go test ./migrations -update (-committed +migrated):\n%s", diff)
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// schemaOf dumps the schema without the table that goose keeps of the migrations.
func schemaOf(t *testing.T, address string) string {
	t.Helper()
	return dump(t, address, "--schema=taskledger", "--exclude-table=taskledger.schema_version*")
}

// dump returns the definitions in a database, without what differs from run to run.
func dump(t *testing.T, address string, options ...string) string {
	t.Helper()
	command := exec.Command(pgDump(t, address), append(options, "--schema-only", "--no-owner", "--no-privileges", "--dbname="+address)...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("pg_dump: %v\n%s", err, stderr.String())
	}
	var b strings.Builder
	blank := true
	for line := range strings.Lines(string(out)) {
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

// pgDump returns the path of the pg_dump that came with the server, or else of one in PATH.
func pgDump(t *testing.T, address string) string {
	t.Helper()
	dir := ask(t, address, "select setting from pg_config where name = 'BINDIR'")
	beside := filepath.Join(dir, "pg_dump")
	if _, err := os.Stat(beside); err == nil {
		return beside
	}
	path, err := exec.LookPath("pg_dump")
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("the server is on another machine, and no pg_dump is in PATH")
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func majorVersion(t *testing.T, address string) string {
	t.Helper()
	return ask(t, address, "select current_setting('server_version_num')::int / 10000 || ''")
}

func ask(t *testing.T, address, question string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context()) //nolint:errcheck // was only read from
	var answer string
	if err := conn.QueryRow(t.Context(), question).Scan(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}
