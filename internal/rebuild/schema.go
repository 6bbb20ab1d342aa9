package rebuild

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/use_schema.sql
	useSchemaSQL string
	//go:embed sql/create_schema.sql
	createSchemaSQL string
	//go:embed sql/schema_content.sql
	schemaContentSQL string
	//go:embed sql/missing_tables.sql
	missingTablesSQL string
	//go:embed sql/build_schema.sql
	buildSchemaSQL string
	//go:embed sql/build_drop.sql
	buildDropSQL string
)

// schemaComment is the comment of a schema that was made for a reader.
func schemaComment(name string) string {
	return "Tables of the " + name + " of taskledger. A rebuild replaces them."
}

// makeSchema makes a schema for tables of a reader.
func makeSchema(ctx context.Context, tx pgx.Tx, name, schema string) error {
	err := pgquery.ExecAll(ctx, tx, createSchemaSQL, schema, schemaComment(name))
	if err == nil || IsOutage(err) {
		return pgerr.Explain("make schema "+schema, err)
	}
	cure := "drop or rename the schema, or set another Schema"
	if pgerr.Is(err, pgerr.InsufficientPrivilege) {
		cure = "grant the login of this program CREATE on the database"
	}
	return &TablesError{Of: name, Tables: []string{"schema " + schema}, Reason: err.Error(), Cure: cure}
}

// MakeTables makes a schema with the tables of a reader, and returns their names. name is
// "subscriber " and its name. It does not commit.
//
// Errors: [*TablesError], and errors of the database.
func MakeTables(ctx context.Context, tx pgx.Tx, name, schema, ddl string) ([]string, error) {
	fail := func(tables []string, reason, cure string) error {
		return &TablesError{Of: name, Tables: tables, Reason: reason, Cure: cure}
	}
	if err := makeSchema(ctx, tx, name, schema); err != nil {
		return nil, err
	}
	if _, err := UseSchema(ctx, tx, schema); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, ddl); err != nil {
		if IsOutage(err) {
			return nil, pgerr.Explain("make the tables of "+name, err)
		}
		return nil, fail([]string{"DDL"}, err.Error(), "correct the DDL")
	}
	rows, err := tx.Query(ctx, schemaContentSQL, schema)
	if err != nil {
		return nil, pgerr.Explain("read schema "+schema, err)
	}
	var tables, others []string
	var object string
	var isTable bool
	if _, err := pgx.ForEachRow(rows, []any{&object, &isTable}, func() error {
		if isTable {
			tables = append(tables, object)
		} else {
			others = append(others, object)
		}
		return nil
	}); err != nil {
		return nil, pgerr.Explain("read schema "+schema, err)
	}
	if len(others) > 0 {
		return nil, fail(others, "not a table", "let the DDL make tables and their indexes only")
	}
	if len(tables) == 0 {
		return nil, fail([]string{"DDL"}, "it makes no table in the schema",
			"name tables without a schema in the DDL")
	}
	return tables, nil
}

// MissingTables returns the registered tables of a reader that do not exist in a schema.
func MissingTables(ctx context.Context, db ledger.DB, reader, schema string) ([]string, error) {
	missing, err := pgquery.Texts(ctx, db, missingTablesSQL, reader, schema)
	return missing, pgerr.Explain("read the tables of "+reader, err)
}

// UseSchema makes a schema the only one in which unqualified tables are found, until the end of the transaction, and
// returns the id of the transaction, "" if it has none.
func UseSchema(ctx context.Context, tx pgx.Tx, schema string) (xid string, err error) {
	var path string
	_, err = pgquery.Row(ctx, tx, useSchemaSQL, []any{schema}, &path, &xid)
	return xid, pgerr.Explain("use schema "+schema, err)
}

// CheckSchema reports whether a schema for new tables contains any. It returns a [*TablesError] if another login has
// made it, because its content is unknown then.
func CheckSchema(ctx context.Context, db ledger.DB, name, schema string) (hasTables bool, err error) {
	var owner string
	var isOwn bool
	found, err := pgquery.Row(ctx, db, buildSchemaSQL, []any{schema}, &owner, &isOwn, &hasTables)
	if err == nil && found && !isOwn {
		return false, &TablesError{
			Of: name, Tables: []string{"schema " + schema}, Reason: "it belongs to " + owner,
			Cure: "drop it, or work as " + owner,
		}
	}
	return hasTables, pgerr.Explain("read schema "+schema, err)
}

// DropSchema removes the tables of an earlier build or verification. It does not commit.
func DropSchema(ctx context.Context, tx pgx.Tx, schema string) error {
	return pgerr.Explain("drop schema "+schema, pgquery.ExecAll(ctx, tx, buildDropSQL, schema))
}
