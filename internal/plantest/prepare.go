package plantest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Prepare checks the statements of a package: the files of folder sql, and those in more. Each file must begin with a
// comment, be embedded by a source file next to the folder, and be valid on the database. Its parameters must be plain
// strings or integers, and it must not return a type whose text depends on the role's settings. The login at
// databaseURL must be allowed to execute it. replace names tables that exist in a test only.
func Prepare(t *testing.T, databaseURL string, replace *strings.Replacer, more ...string) {
	t.Helper()
	prepare(t, func(string) string { return databaseURL }, replace, more)
}

// PrepareAs is [Prepare] for a package whose statements need several logins. urlOf returns the address of the login
// that may execute a file.
func PrepareAs(t *testing.T, urlOf func(file string) string, more ...string) {
	t.Helper()
	prepare(t, urlOf, nil, more)
}

func prepare(t *testing.T, urlOf func(file string) string, replace *strings.Replacer, more []string) {
	t.Helper()
	files, err := filepath.Glob("sql/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	conns := make(map[string]*pgx.Conn)
	embedded := embeddedFiles(t)
	for _, file := range append(files, more...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		statement := string(text)
		if replace != nil {
			statement = replace.Replace(statement)
		}
		if !strings.HasPrefix(statement, "-- ") {
			t.Errorf("%s does not begin with a comment", file)
		}
		if filepath.Dir(file) == "sql" && !embedded[file] {
			t.Errorf("%s is not embedded", file)
		}
		address := urlOf(file)
		if conns[address] == nil {
			if conns[address], err = pgx.Connect(t.Context(), address); err != nil {
				t.Fatal(err)
			}
			defer conns[address].Close(t.Context())
		}
		prepareOne(t, conns[address], file, statement)
	}
}

// prepareOne checks that the login of conn may execute a statement, and the types of its parameters and columns.
func prepareOne(t *testing.T, conn *pgx.Conn, file, statement string) {
	t.Helper()
	prepared, err := conn.Prepare(t.Context(), file, statement)
	if err != nil {
		t.Errorf("%s: %v", file, err)
		return
	}
	// Rights are checked when a plan is executed or explained.
	nulls := strings.TrimSuffix(strings.Repeat("null, ", len(prepared.ParamOIDs)), ", ")
	explain := "explain execute " + pgx.Identifier{file}.Sanitize()
	if nulls != "" {
		explain += "(" + nulls + ")"
	}
	if _, err := conn.Exec(t.Context(), explain); err != nil {
		t.Errorf("%s: %v", file, err)
	}
	for i, oid := range prepared.ParamOIDs {
		switch oid {
		case pgtype.TextOID, pgtype.Int4OID, pgtype.Int8OID:
		default:
			t.Errorf("%s: $%d is not a plain string or integer (type %d)", file, i+1, oid)
		}
	}
	for _, field := range prepared.Fields {
		if dependent[field.DataTypeOID] {
			t.Errorf("%s: the text of column %s depends on settings of the role (type %d); "+
				"return microseconds since 1970", file, field.Name, field.DataTypeOID)
		}
	}
}

// dependent are the types whose text changes with DateStyle, IntervalStyle, timezone, bytea_output, lc_monetary or
// extra_float_digits. Some query modes and some drivers read results as text.
var dependent = map[uint32]bool{
	pgtype.TimestamptzOID: true, pgtype.TimestamptzArrayOID: true, pgtype.TimestampOID: true,
	pgtype.TimestampArrayOID: true, pgtype.DateOID: true, pgtype.DateArrayOID: true, pgtype.TimeOID: true,
	pgtype.TimetzOID: true, pgtype.IntervalOID: true,
	pgtype.ByteaOID: true, pgtype.ByteaArrayOID: true, pgtype.Float4OID: true, pgtype.Float8OID: true, moneyOID: true,
}

const moneyOID = 790

var embedDirective = regexp.MustCompile(`(?m)^\s*//go:embed (sql/\S+\.sql)$`)

// embeddedFiles returns the files that the sources in this folder embed by name.
func embeddedFiles(t *testing.T) map[string]bool {
	t.Helper()
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	embedded := make(map[string]bool)
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range embedDirective.FindAllStringSubmatch(string(text), -1) {
			embedded[match[1]] = true
		}
	}
	return embedded
}
