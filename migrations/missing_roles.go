package migrations

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"

	"github.com/jackc/pgx/v5"
)

// MissingRolesError is returned by [MakeRoles] if roles do not exist and the login may not create them. An
// administrator executes its SQL, and the owner then calls MakeRoles again.
type MissingRolesError struct {
	Roles []string // names of the missing roles
	Err   error    // the refusal of the database
}

func (e *MissingRolesError) Error() string { return e.Err.Error() }

func (e *MissingRolesError) Unwrap() error { return e.Err }

// SQL returns the statements that create the roles.
func (e *MissingRolesError) SQL() string {
	statements := make([]string, len(e.Roles))
	for i, role := range e.Roles {
		statements[i] = "create role " + pgx.Identifier{role}.Sanitize() + ";"
	}
	return strings.Join(statements, " ")
}

// insufficientPrivilege is a SQLSTATE.
const insufficientPrivilege = "42501"

// missingRoles selects the names in $1, a JSON array, for which no role exists. It selects none if the login may create
// roles.
const missingRoles = `
	select n.name
	  from json_array_elements_text($1::text::json) with ordinality n (name, i)
	 where not exists (select from pg_catalog.pg_roles r where r.rolname = n.name)
	   and not exists (select from pg_catalog.pg_roles r
	                    where r.rolname = current_user and (r.rolcreaterole or r.rolsuper))
	 order by n.i`

// readMissing returns the roles that do not exist and that the login may not create.
func readMissing(ctx context.Context, db *sql.DB, names []string) (missing []string, err error) {
	list, err := json.Marshal(names)
	if err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, missingRoles, string(list))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err returns the error
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		missing = append(missing, name)
	}
	return missing, rows.Err()
}
