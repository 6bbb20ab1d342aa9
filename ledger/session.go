package ledger

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/session_read.sql
	sessionReadSQL string
	//go:embed sql/session_role.sql
	sessionRoleSQL string
	//go:embed sql/session_reset.sql
	sessionResetSQL string
)

// session is the state of a connection's session before code of callers ran in it, which [TxOptions].ResetSession
// restores. It is constant.
type session struct{ login, role, encoding, settings string }

// sessionKey is the key of a connection's session in its custom data.
const sessionKey = "taskledger.session"

// readSession returns the session of a connection as it was at the first call for the connection.
//
// It also prepares the statements that end a transaction: in a transaction, the current role may lack the right to
// parse them.
func readSession(ctx context.Context, conn *pgx.Conn) (*session, error) {
	if s, ok := conn.PgConn().CustomData()[sessionKey].(*session); ok {
		return s, nil
	}
	s := &session{}
	_, err := pgquery.Row(ctx, conn, sessionReadSQL, nil, &s.login, &s.role, &s.encoding, &s.settings)
	if err != nil {
		return nil, pgerr.Explain("read the settings of the session", err)
	}
	if conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		for _, sql := range []string{
			sessionRoleSQL, sessionResetSQL, appendRequired[EventSucceeded], appendRequiredRead[EventSucceeded],
		} {
			if _, err := conn.Prepare(ctx, sql, sql); err != nil {
				return nil, pgerr.Explain("prepare the end of a transaction", err)
			}
		}
	}
	conn.PgConn().CustomData()[sessionKey] = s
	return s, nil
}

// describesFirst reports whether the connection describes each statement of a batch before it executes the first one.
func describesFirst(conn *pgx.Conn) bool {
	switch conn.Config().DefaultQueryExecMode {
	case pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec:
		return true
	default:
		return false
	}
}

// roleText is session_role.sql with literals.
func (s *session) roleText() string {
	return fmt.Sprintf("select pg_catalog.set_config('session_authorization', %s, false), "+
		"pg_catalog.set_config('role', %s, false), pg_catalog.set_config('client_encoding', %s, false)",
		quote(s.login), quote(s.role), quote(s.encoding))
}

// rollbackText returns the statements that roll back a transaction and reset the session. They are one message, and
// need not be prepared, because a failed transaction refuses that.
func (s *session) rollbackText() string {
	return "rollback; " + s.roleText() + "; select taskledger_internal.reset_session(" + quote(s.settings) + ")"
}

// quote returns s as a literal of SQL, under any standard_conforming_strings.
func quote(s string) string {
	return "E'" + strings.NewReplacer(`'`, `''`, `\`, `\\`).Replace(s) + "'"
}
