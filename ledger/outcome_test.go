package ledger_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// wantError fails the test unless err is want. A nil want means no error.
func wantError(t *testing.T, err, want error) {
	t.Helper()
	if want == nil && err != nil || !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

// wantErrorAs returns err as an E. It ends the test if err is not an E.
func wantErrorAs[E error](t *testing.T, err error) E {
	t.Helper()
	var as E
	if !errors.As(err, &as) {
		t.Fatalf("got error %v (%[1]T), want a %T", err, as)
	}
	return as
}

// sqlState returns the SQLSTATE of an error, "" if it has none.
func sqlState(err error) string {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return ""
	}
	return pg.Code
}

// errorOf returns the error of a call without its result.
func errorOf[T any](_ T, err error) error { return err }
