package main

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/internal/reserve"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/migrations"
	"github.com/taskledger/taskledger/outbox"
)

func TestExitCodesAreTheirOwnIndex(t *testing.T) {
	t.Parallel()
	for i, c := range exitCodes {
		if c.exit != i {
			t.Errorf("%s is %d, want %d", c.code, c.exit, i)
		}
	}
}

func TestErrorsHaveTheirExitCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("anything"), exitFailed},
		{context.Canceled, exitFailed},
		{&ledger.InvalidError{}, exitUsage},
		{ledger.ErrUnknownTask, exitNotFound},
		{&ledger.ConflictError{}, exitConflict},
		{&ledger.OtherArgsError{}, exitConflict},
		{&ledger.TransitionError{}, exitConflict},
		{ledger.ErrRetryTransaction, exitConflict},
		{reserve.ErrHeld, exitConflict},
		{ledger.ErrUnavailable, exitUnavailable},
		{driver.ErrBadConn, exitUnavailable},
		{&pgconn.PgError{Code: pgerr.DuplicateStatement}, exitUnavailable},
		{&pgconn.PgError{Code: pgerr.AdminShutdown}, exitUnavailable},
		{&pgconn.PgError{Code: pgerr.CrashShutdown}, exitUnavailable},
		{io.ErrUnexpectedEOF, exitUnavailable},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, exitUnavailable},
		{feed.ErrNotPrimary, exitUnavailable},
		{nats.ErrPermissionViolation, exitUnavailable},
		{&pgserver.NoBinariesError{}, exitUnavailable},
		{ledger.ErrNotMigrated, exitNotMigrated},
		{migrations.ErrUnreleased, exitNotMigrated},
		{migrations.ErrPooler, exitUnavailable},
		{&ledger.IllegalError{}, exitIntegrity},
		{&ledger.CorruptError{Err: errors.New("bytes")}, exitIntegrity},
		{&feed.OriginError{}, exitIntegrity},
		{&outbox.ForeignStreamError{}, exitIntegrity},
		{&outbox.ForeignWriterError{}, exitIntegrity},
	} {
		if have := describe(fmt.Errorf("while testing: %w", c.err)); have.exit != c.want {
			t.Errorf("%T %v: got %d, want %d", c.err, c.err, have.exit, c.want)
		}
	}
}

// PostgreSQL stops while serve reads which migrations are applied, or ends the session of another command: the error
// has a hint.
func TestLostConnectionHasAHint(t *testing.T) {
	t.Parallel()
	for _, err := range []error{driver.ErrBadConn, &pgconn.PgError{Code: pgerr.AdminShutdown}} {
		f := describe(fmt.Errorf("migrate: %w", err))
		if f.exit != exitUnavailable || !strings.Contains(f.hint, "PostgreSQL stops") {
			t.Errorf("exit code %d, %q, hint %q", f.exit, f.message, f.hint)
		}
	}
}

// A read of an archived task reports when it was archived, and not only that it does not exist.
func TestArchivedTaskIsNamed(t *testing.T) {
	t.Parallel()
	key := ledger.Key{Kind: "coupon.send", BizID: "A-1"}
	err := fmt.Errorf("load: %w", &ledger.ArchivedError{
		Key: key, Version: 2, State: ledger.StateCancelled, At: time.Unix(0, 0), File: "tasks-1",
	})
	f := describe(unknownTask(err, key))
	const message = "archived at 1970-01-01T00:00:00Z, cancelled at version 2"
	if f.exit != exitNotFound || !strings.Contains(f.message, message) ||
		!strings.Contains(f.hint, "--if-exists rerun") {
		t.Errorf("%+v", f)
	}
}
