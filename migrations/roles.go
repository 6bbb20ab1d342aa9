package migrations

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/ledger"
)

//go:embed roles.sql
var rolesSQL string

// Roles returns the names of the roles that [MakeRoles] makes, without the prefix of a database.
func Roles() []string {
	return []string{"producer", "worker", "relay", "operator", "reader", "archiver", "subscriber", "api"}
}

// RoleName returns the name of a role of [Roles] with a prefix: for the database "shop", the role "producer" is
// "shop_producer".
func RoleName(prefix, role string) string { return prefix + "_" + role }

// maxRoleName is the greatest length of a name in PostgreSQL, in bytes.
const maxRoleName = 63

// MakeRoles makes the roles of the ledger in a database, with exactly the rights of roles.sql. It may be called again,
// and must be called again after an upgrade. The caller must own the schema; to create a role that does not exist, it
// also needs CREATEROLE. No role can log in: grant it to a role that can.
//
// limited are workers that are limited to kinds. A limited worker of an earlier call that is not in limited keeps its
// kinds and gets today's rights.
//
// Default of prefix: the name of the database. It returns the names of the roles.
//
// Errors: [ledger.ErrNotMigrated], an [*ledger.InvalidError] if the prefix or a limited worker is invalid, and a
// [*MissingRolesError] if the caller may not create the roles that do not exist.
func MakeRoles(ctx context.Context, databaseURL, prefix string, limited ...LimitedWorker) ([]string, error) {
	if err := Check(ctx, databaseURL); err != nil {
		return nil, err
	}
	db, err := open(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("migrate roles: %w", err)
	}
	defer func() { _ = db.Close() }() // every statement has returned its own error
	if prefix == "" {
		if err := db.QueryRowContext(ctx, "select current_database()").Scan(&prefix); err != nil {
			return nil, fmt.Errorf("migrate roles: %w", err)
		}
	}
	limited, err = addExisting(ctx, db, prefix, limited)
	if err != nil {
		return nil, fmt.Errorf("migrate roles: %w", err)
	}
	script, err := RolesSQL(prefix, limited...)
	if err != nil {
		return nil, fmt.Errorf("migrate roles: %w", err)
	}
	names := withLimited(Roles(), limited)
	for i := range names {
		names[i] = RoleName(prefix, names[i])
	}
	missing, err := readMissing(ctx, db, names)
	if err != nil {
		return nil, fmt.Errorf("migrate roles: %w", err)
	}
	// Without arguments it is one message, and the statements between begin and commit are one transaction.
	if _, err := db.ExecContext(ctx, script); err != nil {
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == insufficientPrivilege && len(missing) > 0 {
			err = &MissingRolesError{Roles: missing, Err: err}
		}
		return nil, fmt.Errorf("migrate roles: %w", err)
	}
	return names, nil
}

// RolesSQL returns the statements of [MakeRoles], which an administrator can execute. They are one transaction.
//
// Errors: an [*ledger.InvalidError] if the prefix is empty, too long or contains $, or a limited worker is invalid.
func RolesSQL(prefix string, limited ...LimitedWorker) (string, error) {
	if strings.Contains(prefix, "$") {
		return "", &ledger.InvalidError{Field: "prefix", Value: prefix, Rule: "must not contain $"}
	}
	if longest := maxRoleName - len("_producer"); prefix == "" || len(prefix) > longest {
		rule := fmt.Sprintf("must have 1 to %d bytes, got %d", longest, len(prefix))
		return "", &ledger.InvalidError{Field: "prefix", Value: prefix, Rule: rule}
	}
	for _, l := range limited {
		if err := l.validate(prefix); err != nil {
			return "", err
		}
	}
	grants, policies := parseRoles()
	roles := withLimited(Roles(), limited)
	all := quoteRoles(prefix, strings.Join(roles, ", "))
	var b strings.Builder
	b.WriteString("begin;\nset local lock_timeout = '5s';\nset local client_min_messages = 'warning';\n" +
		"lock table " + versionTable + " in share update exclusive mode;\n") // no role may lock it
	for _, role := range roles {
		fmt.Fprintf(&b, "do $roles$ begin\n  if to_regrole(%s) is null then create role %s; end if;\nend $roles$;\n",
			quoteText(quoteRole(prefix, role)), quoteRole(prefix, role))
	}
	for _, objects := range []string{
		"all tables in schema", "all sequences in schema", "all functions in schema", "schema",
	} {
		fmt.Fprintf(&b, "revoke all on %s taskledger, taskledger_internal from %s;\n", objects, all)
	}
	for _, g := range grants {
		to := strings.Split(g.roles, ", ")
		if slices.Contains(to, worker) && g.objects != unlimitedView {
			to = withLimited(to, limited)
		}
		fmt.Fprintf(&b, "grant %s on %s to %s;\n", g.privileges, g.objects, quoteRoles(prefix, strings.Join(to, ", ")))
	}
	for _, p := range policies {
		b.WriteString(p.script(prefix))
	}
	for _, l := range limited {
		for _, p := range l.policies(policies) {
			b.WriteString(p.script(prefix))
		}
	}
	b.WriteString("commit;\n")
	return b.String(), nil
}

// grant is a grant of roles.sql. Privileges, objects and roles are lists as in SQL.
type grant struct{ privileges, objects, roles string }

// policy is a policy of roles.sql. Its name begins with a role's name. clause is with check or using.
type policy struct {
	name, table, command, roles, clause, rule string

	limit string // the kinds of a limited worker, as in the argument of [ParseLimitedWorker]
}

var (
	comment         = regexp.MustCompile(`(?m)^--.*\n`)
	grantStatement  = regexp.MustCompile(`^grant (.*) on (.*) to ([a-z, ]+)$`)
	policyStatement = regexp.MustCompile(
		`^create policy (\w+) on (\S+) for (insert|select|all) to ([a-z, ]+?) (with check|using) \((.*)\)$`,
	)
)

// parseRoles returns the statements of roles.sql. It panics at an unknown statement.
func parseRoles() (grants []grant, policies []policy) {
	for statement := range strings.SplitSeq(comment.ReplaceAllString(rolesSQL, ""), ";\n") {
		statement = strings.Join(strings.Fields(statement), " ")
		if m := grantStatement.FindStringSubmatch(statement); m != nil {
			grants = append(grants, grant{privileges: m[1], objects: m[2], roles: m[3]})
		} else if m := policyStatement.FindStringSubmatch(statement); m != nil {
			policies = append(policies, policy{
				name: m[1], table: m[2], command: m[3], roles: m[4], clause: m[5], rule: m[6],
			})
		} else if statement != "" {
			panic("roles.sql: invalid statement: " + statement)
		}
	}
	return grants, policies
}

// script returns statements that create the policy, unless it already exists as required: creating a policy locks the
// table against all other transactions. The comment contains a hash of the policy, and the kinds of a limited worker.
func (p policy) script(prefix string) string {
	name := quoteRole(prefix, p.name)
	create := fmt.Sprintf("create policy %s on %s for %s to %s %s (%s)",
		name, p.table, p.command, quoteRoles(prefix, p.roles), p.clause, p.rule)
	sum := sha256.Sum256([]byte(create))
	mark := "taskledger migrate roles " + hex.EncodeToString(sum[:8]) + p.limit
	return fmt.Sprintf(`do $roles$ begin
  if not exists (select from pg_policy p where p.polrelid = %[1]s::regclass and p.polname = %[2]s
                    and obj_description(p.oid, 'pg_policy') = '%[3]s') then
    drop policy if exists %[4]s on %[5]s;
    %[6]s;
    comment on policy %[4]s on %[5]s is '%[3]s';
  end if;
end $roles$;
`, quoteText(p.table), quoteText(RoleName(prefix, p.name)), mark, name, p.table, create)
}

// quoteRole returns the name of a role as an identifier in SQL.
func quoteRole(prefix, role string) string { return pgx.Identifier{RoleName(prefix, role)}.Sanitize() }

// quoteRoles is quoteRole for a list as in SQL.
func quoteRoles(prefix, roles string) string {
	names := strings.Split(roles, ", ")
	for i := range names {
		names[i] = quoteRole(prefix, names[i])
	}
	return strings.Join(names, ", ")
}

// quoteText returns a string literal, in every setting of standard_conforming_strings.
func quoteText(s string) string {
	return " E'" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(s) + "'"
}
