// Package pgerr classifies the errors of PostgreSQL: by SQLSTATE, by whether a retry helps, and by the cure
// that a person can apply. Every package of this module uses it, so that an error means the same everywhere.
package pgerr

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// The SQLSTATEs that this module distinguishes; names as in PostgreSQL's appendix A.
const (
	FeatureNotSupported          = "0A000"
	NotNullViolation             = "23502"
	InvalidTextRepresentation    = "22P02"
	InvalidDatetimeFormat        = "22007"
	UniqueViolation              = "23505"
	InvalidParameterValue        = "22023"
	ReadOnlySQLTransaction       = "25006"
	InvalidAuthorization         = "28000"
	InvalidPassword              = "28P01"
	InvalidSavepoint             = "3B001"
	InvalidCatalogName           = "3D000"
	InvalidSchemaName            = "3F000"
	InvalidStatementName         = "26000"
	SerializationFailure         = "40001"
	DeadlockDetected             = "40P01"
	InsufficientPrivilege        = "42501"
	UndefinedColumn              = "42703"
	UndefinedObject              = "42704"
	UndefinedFunction            = "42883"
	UndefinedTable               = "42P01"
	DuplicateDatabase            = "42P04"
	DuplicateStatement           = "42P05"
	TooManyConnections           = "53300"
	ConfigurationLimitReached    = "53400"
	ObjectNotInPrerequisiteState = "55000"
	LockNotAvailable             = "55P03"
	QueryCanceled                = "57014"
	AdminShutdown                = "57P01"
	CrashShutdown                = "57P02"
	CannotConnectNow             = "57P03"
)

// StartLimit is the SQLSTATE of a start that would exceed a limit.
const StartLimit = "TL008"

// The classes (first two characters) of SQLSTATEs that this module distinguishes.
const (
	ClassConnectionException     = "08"
	ClassInvalidTransactionState = "25"
	ClassInvalidAuthorization    = "28"
	ClassInvalidCatalogName      = "3D"
	ClassSyntaxErrorOrAccessRule = "42"
	ClassInsufficientResources   = "53"
	ClassOperatorIntervention    = "57"
	ClassSystemError             = "58"
	ClassInternalError           = "XX"
)

// Errors with a cure. Package ledger exports them.
var (
	ErrNotMigrated      = errors.New("the database is not migrated (run: taskledger migrate up)")
	ErrUnavailable      = errors.New("cannot connect to the database")
	ErrRetryTransaction = errors.New("retry the transaction: it conflicts with a concurrent one")
	ErrStartLimit       = errors.New("a limit of the kind allows no further start now")

	errArrayNulls = errors.New("the database or the login sets array_nulls = off: reset it")
	errPooler     = errors.New("a pooler in transaction mode mixes up prepared statements: " +
		"add default_query_exec_mode=exec to the address of the database")
	errStatements = errors.New("the session has lost its prepared statements: " +
		"do not execute DEALLOCATE ALL or DISCARD ALL in it, " +
		"and behind a pooler in transaction mode add default_query_exec_mode=exec to the address of the database")
)

// Code returns the SQLSTATE of the first error of PostgreSQL in err's chain, or "".
func Code(err error) string {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) != 5 {
		return ""
	}
	return pg.Code
}

// Class returns the class of [Code], or "".
func Class(err error) string {
	if code := Code(err); code != "" {
		return code[:2]
	}
	return ""
}

// Is reports whether err has one of these SQLSTATEs.
func Is(err error, codes ...string) bool {
	code := Code(err)
	return code != "" && slices.Contains(codes, code)
}

// IsNotMigrated reports whether the database lacks a table, schema, function, type or column that a
// statement names.
func IsNotMigrated(err error) bool {
	return Is(err, UndefinedTable, InvalidSchemaName, UndefinedFunction, UndefinedObject, UndefinedColumn)
}

// IsConnectionLost reports whether the connection broke or could not be established.
func IsConnectionLost(err error) bool {
	var network *net.OpError
	return (isConnectError(err) || errors.As(err, &network) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, driver.ErrBadConn)) &&
		!errors.Is(err, context.Canceled)
}

// IsRetryable reports whether the same transaction may succeed when it is run again. It may after a serialization
// failure, a deadlock, a lock timeout, a lost connection, a write on a standby, or a change of a table for which the
// session had a plan. It may also while the server starts, stops or is out of free connections.
func IsRetryable(err error) bool {
	if errors.Is(err, ErrRetryTransaction) {
		return true
	}
	if Code(err) == "" {
		return IsConnectionLost(err) || pgconn.SafeToRetry(err) || pgconn.Timeout(err)
	}
	return Class(err) == ClassConnectionException ||
		Is(err, SerializationFailure, DeadlockDetected, LockNotAvailable, AdminShutdown, CrashShutdown,
			CannotConnectNow, TooManyConnections, ReadOnlySQLTransaction) || isPlanStale(err)
}

// isPlanStale reports whether a prepared statement returns other columns than when it was prepared. The text of the
// error is translated, the routine is not.
func isPlanStale(err error) bool {
	var pg *pgconn.PgError
	return Is(err, FeatureNotSupported) && errors.As(err, &pg) && pg.Routine == "RevalidateCachedQuery"
}

// NotMigrated returns err wrapped by [ErrNotMigrated] if the schema is missing, else nil. It is a Stop
// function for package loop.
func NotMigrated(err error) error {
	switch {
	case errors.Is(err, ErrNotMigrated):
		return err
	case IsNotMigrated(err):
		return fmt.Errorf("%w: %w", ErrNotMigrated, err)
	}
	return nil
}

// Permanent returns err if [IsPermanent], wrapped by [ErrNotMigrated] if the schema is missing, else nil. It
// is a Stop function for package loop.
func Permanent(err error) error {
	if final := NotMigrated(err); final != nil || !IsPermanent(err) {
		return final
	}
	return err
}

// IsPermanent reports whether waiting cannot help: the schema is missing, the database does not exist, or the role may
// not connect or run the statement.
func IsPermanent(err error) bool {
	return errors.Is(err, ErrNotMigrated) || IsNotMigrated(err) || Is(err, InsufficientPrivilege, InvalidCatalogName) ||
		Class(err) == ClassInvalidAuthorization
}

// Explain wraps err with the operation op and, where a cure is known, with [ErrUnavailable],
// [ErrNotMigrated], [ErrRetryTransaction] or [ErrStartLimit]. It returns nil for nil.
func Explain(op string, err error) error {
	if err == nil {
		return nil
	}
	if cure := cureOf(err); cure != nil && !errors.Is(err, cure) {
		return fmt.Errorf("%s: %w: %w", op, cure, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

func cureOf(err error) error {
	switch {
	case isConnectError(err) && !errors.Is(err, context.Canceled):
		return ErrUnavailable
	case IsNotMigrated(err):
		return ErrNotMigrated
	case Is(err, SerializationFailure):
		return ErrRetryTransaction
	case Is(err, StartLimit):
		return ErrStartLimit
	case Is(err, DuplicateStatement):
		return errPooler
	case Is(err, InvalidStatementName):
		return errStatements
	case hasArrayNullsOff(err):
		return errArrayNulls
	}
	return nil
}

// hasArrayNullsOff reports whether a NULL in an array literal was refused, because it was taken for a text.
func hasArrayNullsOff(err error) bool {
	var pg *pgconn.PgError
	return Is(err, InvalidTextRepresentation, InvalidDatetimeFormat) && errors.As(err, &pg) &&
		(strings.HasSuffix(pg.Message, `: "NULL"`) || pg.Detail == `Token "NULL" is invalid.`)
}

func isConnectError(err error) bool {
	var connect *pgconn.ConnectError
	return errors.As(err, &connect)
}
