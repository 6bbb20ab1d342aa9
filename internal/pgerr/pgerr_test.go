package pgerr_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Each statement fails like a statement of this module in an incomplete database.
func TestExplain(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t)
	for sql, want := range map[string]error{
		"select from taskledger.nothing":              ledger.ErrNotMigrated,
		"create table nowhere.nothing ()":             ledger.ErrNotMigrated,
		"select taskledger.nothing()":                 ledger.ErrNotMigrated,
		"select null::taskledger.nothing":             ledger.ErrNotMigrated,
		"select nothing from taskledger.event":        ledger.ErrNotMigrated,
		"insert into taskledger.setting values ('a')": nil,
	} {
		_, err := db.Exec(t.Context(), sql)
		explained := pgerr.Explain("op", err)
		if err == nil || !errors.Is(explained, err) || want != nil && !errors.Is(explained, want) ||
			want == nil && (errors.Is(explained, ledger.ErrNotMigrated) ||
				errors.Is(explained, ledger.ErrUnavailable)) {
			t.Errorf("%s: %v, want %v", sql, explained, want)
		}
	}
	if err := pgerr.Explain("op", nil); err != nil {
		t.Errorf("nil became %v", err)
	}
}

// Another session has the statements that a program has prepared, as behind a pooler in transaction mode.
func TestExplainPooler(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t)
	const prepare = "prepare a as select 1"
	for _, last := range []string{prepare, "execute b"} {
		conn, err := db.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{"deallocate all", prepare, last} {
			_, err = conn.Exec(t.Context(), sql)
		}
		conn.Release()
		if err == nil || !strings.Contains(pgerr.Explain("op", err).Error(), "add default_query_exec_mode=exec") {
			t.Errorf("%s: %v has no cure", last, pgerr.Explain("op", err))
		}
	}
}

func TestExplainUnavailable(t *testing.T) {
	t.Parallel()
	_, err := pgx.Connect(t.Context(), "postgres://127.0.0.1:1/nothing?connect_timeout=5")
	if !errors.Is(pgerr.Explain("op", err), ledger.ErrUnavailable) {
		t.Errorf("%v is not unavailable", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = pgx.Connect(ended, "postgres://127.0.0.1:1/nothing")
	if errors.Is(pgerr.Explain("op", err), ledger.ErrUnavailable) {
		t.Errorf("%v is the end of the caller's context", err)
	}
}
