package main

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/embedded"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/reserve"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/migrations"
	"github.com/taskledger/taskledger/outbox"
)

// failure is an error in the form that the user sees.
type failure struct {
	exit    int
	message string
	hint    string // the cure; empty: unknown
	details string // the whole error, if the message is not; shown on request

	isRefused  bool           // the login lacks a right: the cure is the role of the command
	isNoUser   bool           // the login lacks the role of a user in the NATS server of serve
	retryAfter *time.Duration // of a limit that is reached
}

func (f *failure) Error() string { return f.message }

// hinted returns f with a cure.
func (f *failure) hinted(format string, a ...any) *failure {
	f.hint = fmt.Sprintf(format, a...)
	return f
}

func failf(exit int, format string, a ...any) *failure {
	return &failure{exit: exit, message: fmt.Sprintf(format, a...)}
}

func usagef(format string, a ...any) *failure { return failf(exitUsage, format, a...) }

// usage turns an error of the command line's parser into a usage error.
func usage(err error) error {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		return usagef("--%s: %s", value.GetFlag().Name, wrongValue(value.GetFlag(), value.GetValue(), value.Unwrap()))
	}
	message, _, _ := strings.Cut(err.Error(), "\n") // cobra's suggestions follow
	return usagef("%s", message).hinted("run: taskledger --help")
}

// wrongValue returns the type of value that a flag requires. The errors of Go's parsers do not contain it.
func wrongValue(f *pflag.Flag, value string, cause error) string {
	switch f.Value.Type() {
	case "int", "int64":
		return fmt.Sprintf("must be a whole number, got %q", value)
	case "float64":
		return fmt.Sprintf("must be a number, got %q", value)
	case "bool":
		return fmt.Sprintf("must be true or false, got %q", value)
	case "duration":
		return fmt.Sprintf("must be a duration such as 90s, 72h or 3d, got %q", value)
	}
	return cause.Error()
}

// describe is the function [describe], with the role that this command needs.
func (a *app) describe(err error) *failure {
	f := describe(err)
	if f.isRefused {
		f.hint = a.roleHint()
	}
	if connect := (*pgconn.ConnectError)(nil); errors.As(err, &connect) && errors.Is(err, syscall.ECONNREFUSED) &&
		connect.Config.Host == "127.0.0.1" && int(connect.Config.Port) == embedded.LastPort(a.config.dataDir) {
		f.hint = fmt.Sprintf("that is serve's own PostgreSQL, which does not run: taskledger serve --data-dir %s",
			a.config.dataDir)
		if a.command == "taskledger serve" {
			f.hint = "that is serve's own PostgreSQL, which serve starts only without " + envDatabaseURL + ": unset it"
		}
	}
	if binaries := (*pgserver.NoBinariesError)(nil); errors.As(err, &binaries) {
		if a.command == "taskledger serve" {
			f.hint = "or set " + envDatabaseURL + " to a running server"
		}
		f.details = "searched: " + strings.Join(binaries.Searched, ", ")
	} else if whole := strings.TrimSpace(err.Error()); whole != f.message {
		f.details = whole
	}
	if !a.verbose {
		f.details = ""
	}
	return f
}

// missingRolesHint names the two ways to make the roles if the owner lacks CREATEROLE.
const missingRolesHint = "let an administrator execute: %s then run taskledger migrate roles again as the owner; " +
	"or let an administrator run it that is a member of the owner"

// describe returns an error in the form that the user sees, with its exit code and cure.
func describe(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	if f = describeDatabase(err); f != nil {
		return f
	}
	var (
		invalid    *ledger.InvalidError
		conflict   *ledger.ConflictError
		otherArgs  *ledger.OtherArgsError
		transition *ledger.TransitionError
		overload   *ledger.OverloadError
		subscribed *feed.SubscribedError
		binaries   *pgserver.NoBinariesError
		noServer   *natsclient.NotFoundError
		noAnswer   *natsclient.UnreachableError
		timeout    *ledger.WaitTimeoutError
		task       *ledger.TaskError
		unreadable *archive.UnreadableError
		damaged    *archive.FileError
		unread     *seal.TilesError
	)
	f = failf(exitFailed, "%s", strings.ReplaceAll(err.Error(), "\n", "; ")) // several faults, a line each
	if raised := (*pgconn.PgError)(nil); errors.As(err, &raised) && strings.HasPrefix(raised.Message, "taskledger") {
		f.hint = raised.Hint // of the ledger's own functions and migrations
	}
	switch {
	case errors.As(err, &invalid):
		f.exit = exitUsage
	case errors.As(err, &unreadable) && errors.As(err, &damaged):
		f.exit, f.message = exitIntegrity, plain(unreadable.Error())
		f.hint = "restore this file from another copy of the archive, or name one with --archive or " + envArchive
	case errors.As(err, &unreadable):
		f.exit, f.message = exitUnavailable, plain(unreadable.Error())
		f.hint = archiveHint
	case errors.As(err, &unread) && !errors.Is(err, seal.ErrInconsistent):
		f.exit, f.message, f.hint = exitUnavailable, plain(unread.Error()), archiveHint
	case errors.As(err, &unread):
		f.exit, f.message = exitIntegrity, plain(unread.Error())
		f.hint = "restore the archive's directory tile from a copy, or name a copy with --archive or " + envArchive
	case errors.Is(err, ledger.ErrUnknownTask), errors.Is(err, periodic.ErrUnknownSchedule),
		errors.Is(err, subscribers.ErrNotParked), errors.Is(err, outbox.ErrUnknownSubscriber),
		errors.Is(err, projection.ErrNotIllegal):
		f.exit = exitNotFound
	case errors.Is(err, ledger.ErrUnknownPosition):
		f.exit = exitNotFound
		f.hint = "it was archived, or never existed: give the position of another event (taskledger events)"
	case errors.Is(err, subscribers.ErrNoTables):
		f.exit = exitNotFound
		f.hint = "its program makes them when it first runs with Subscription.Tables"
	case errors.As(err, &timeout):
		f.exit, f.message = exitTimeout, timeout.Error()
	case errors.As(err, &task):
		f.exit, f.message = exitUnsuccessful, task.Error()
		if task.Task.State == ledger.StateDiscarded && task.Task.Reason == ledger.ReasonArchived {
			f.hint = "a task with this key has finished and was archived: enqueue --check-archive answers it at " +
				"once, and --if-exists rerun runs it again"
		}
	case errors.Is(err, feed.ErrSuperseded):
		f.exit = exitConflict
		f.hint = "another process is doing the same; wait for it"
	case errors.As(err, &overload):
		f.exit, f.retryAfter = exitConflict, &overload.RetryAfter
	case errors.As(err, &otherArgs):
		f.exit = exitConflict
		f.hint = "a key names one task: show it with taskledger show task, or choose another BIZ_ID"
	case errors.As(err, &transition):
		f.exit = exitConflict
		if transition.Type == ledger.EventReleased && transition.State == ledger.StateSucceeded {
			f.hint = "run it again as another task: taskledger clone " + shellKey(transition.Key) + " --as BIZ_ID"
		}
	case errors.As(err, &conflict),
		errors.As(err, &subscribed), errors.Is(err, relays.ErrStreamOff), errors.Is(err, ledger.ErrRetryTransaction):
		f.exit = exitConflict
	case errors.Is(err, reserve.ErrHeld):
		f.exit = exitConflict
		f.hint = "another taskledger serve or demo uses this data directory; stop it, or set --data-dir"
	case errors.As(err, &noServer):
		f.exit, f.hint = exitUnavailable, noServer.Cure
	case errors.As(err, &noAnswer):
		f.exit, f.message, f.hint = exitUnavailable, noAnswer.Error(), noAnswer.Cure()
	case errors.As(err, &binaries), errors.Is(err, embedded.ErrNotRunning):
		f.exit = exitUnavailable
	case errors.Is(err, nats.ErrPermissionViolation):
		f.exit = exitUnavailable
		f.hint = fmt.Sprintf("use the credentials of an operator: %s or %s", envNATSCreds, envNATSNkey)
	case errors.Is(err, nats.ErrConnectionClosed):
		f.exit = exitUnavailable
		f.hint = fmt.Sprintf("check %s, %s and %s", envNATSURL, envNATSCreds, envNATSNkey)
	case violatesIntegrity(err):
		f.exit = exitIntegrity
	case errors.Is(err, context.Canceled):
		f.message = "interrupted"
	}
	return f
}

// violatesIntegrity reports whether err is about data that must not exist.
func violatesIntegrity(err error) bool {
	var (
		illegal *ledger.IllegalError
		corrupt *ledger.CorruptError
		stream  *outbox.ForeignStreamError
		writer  *outbox.ForeignWriterError
	)
	return errors.Is(err, seal.ErrMismatch) || errors.Is(err, seal.ErrNotSealed) ||
		errors.As(err, &illegal) || errors.As(err, &corrupt) || feed.IsRefusal(err) ||
		errors.As(err, &stream) || errors.As(err, &writer)
}

// describeDatabase describes an error that prevents every use of the database; nil: err is a different error.
func describeDatabase(err error) *failure {
	switch {
	case errors.Is(err, ledger.ErrNotMigrated):
		return failf(exitNotMigrated, "the database is not migrated").hinted("run: taskledger migrate up")
	case errors.Is(err, migrations.ErrUnreleased):
		return failf(exitNotMigrated, "the schema taskledger was made by an unreleased version and cannot be upgraded").
			hinted("create a new database (of serve's own: choose another --data-dir), " +
				"or drop the schemas with all tasks: drop schema if exists taskledger, taskledger_internal cascade")
	case errors.Is(err, migrations.ErrPooler):
		return failf(exitUnavailable, "the database's address leads to a pooler in transaction mode, which loses "+
			"the lock of migrations").hinted("connect to PostgreSQL itself, not the pooler")
	case errors.Is(err, feed.ErrNotPrimary):
		return failf(exitUnavailable, "the database is a standby").hinted("name the primary in DATABASE_URL")
	}
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	isConnecting := errors.As(err, &connect)
	if errors.As(err, &pg) && pg.Code == pgerr.InsufficientPrivilege {
		f := failf(exitUnavailable, "the database refuses: %s", pg.Message)
		var missing *migrations.MissingRolesError
		switch {
		case isConnecting:
			return f.hinted("grant the login CONNECT on the database")
		case errors.As(err, &missing):
			return f.hinted(missingRolesHint, missing.SQL())
		}
		f.isRefused = true
		return f
	}
	if pgerr.Is(err, pgerr.InvalidStatementName, pgerr.DuplicateStatement) {
		return failf(exitUnavailable, "%s", err).hinted("behind a pooler in transaction mode add " +
			"default_query_exec_mode=exec to DATABASE_URL; taskledger migrate needs PostgreSQL itself")
	}
	if !isConnecting && isConnectionLost(err) {
		return failf(exitUnavailable, "the connection to the database is lost: %s", err).
			hinted("PostgreSQL stops, starts or has ended the connection: wait, then try again; see its log")
	}
	if !isConnecting && !errors.Is(err, ledger.ErrUnavailable) {
		return nil
	}
	f := failf(exitUnavailable, "cannot connect to the database: %s", reason(err)).
		hinted("check DATABASE_URL, and that PostgreSQL is running there")
	switch cure := databaseTLS.cure(err); {
	case cure != "":
		f.hint = cure
	case pg == nil:
	case pg.Code == pgerr.InvalidPassword, pg.Code == pgerr.InvalidAuthorization:
		f.hint = "check user and password in DATABASE_URL"
	case pg.Code == pgerr.InvalidCatalogName && connect != nil:
		f.hint = fmt.Sprintf("check DATABASE_URL, or create it: createdb %s, then taskledger migrate up",
			connect.Config.Database)
	case pg.Code == pgerr.TooManyConnections:
		f.hint = "PostgreSQL runs: end connections, or raise its max_connections or the limit of the role or database"
	case pg.Code == pgerr.CannotConnectNow:
		f.hint = "PostgreSQL starts or stops: wait, then try again; its log shows the progress"
	default:
		f.hint = "PostgreSQL runs, and refuses for this reason: its log shows the cause, which may be a full disk"
	}
	return f
}

// isConnectionLost reports whether the connection to the database has ended during a statement.
func isConnectionLost(err error) bool {
	var network *net.OpError
	return pgerr.Is(err, pgerr.AdminShutdown, pgerr.CrashShutdown) ||
		errors.Is(err, driver.ErrBadConn) || // of database/sql, by which migrations are read
		errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.As(err, &network) && (network.Op == "read" || network.Op == "write")
}

// reason returns the innermost cause of a failed connection. The text of pgx repeats it for each address.
func reason(err error) string {
	var pg *pgconn.PgError
	var network *net.OpError
	var dns *net.DNSError
	switch {
	case errors.As(err, &pg):
		return pg.Message
	case errors.As(err, &dns):
		return dns.Error()
	case errors.As(err, &network):
		return network.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	}
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// print writes the error for people, or for programs.
func (f *failure) print(w io.Writer, as format, isTerminal bool) {
	if as == formatTable {
		text := red.on("taskledger:") + " " + plain(f.message) + "\n"
		if f.hint != "" {
			text += faint.on("hint:") + " " + plain(f.hint) + "\n"
		}
		for line := range strings.Lines(f.details) {
			text += faint.on("details:") + " " + plain(strings.TrimSpace(line)) + "\n"
		}
		_, _ = w.Write(unpainted([]byte(text), isTerminal))
		return
	}
	type body struct {
		Code         string `json:"code"`
		Message      string `json:"message"`
		Hint         string `json:"hint,omitempty"`
		Details      string `json:"details,omitempty"`
		RetryAfterMS *int64 `json:"retry_after_ms,omitempty"`
	}
	b := body{Code: codeName(f.exit), Message: f.message, Hint: f.hint, Details: f.details}
	if f.retryAfter != nil {
		ms := f.retryAfter.Milliseconds()
		b.Code, b.RetryAfterMS = codeOverloaded, &ms
	}
	text, err := json.Marshal(struct {
		Error body `json:"error"`
	}{b})
	if err != nil { // strings always marshal
		panic(err)
	}
	fmt.Fprintf(w, "%s\n", escapeControls(text))
}
