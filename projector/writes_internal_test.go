package projector

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The error of writes begins with the name of the statement that failed, whether PostgreSQL refuses it or its result is
// not as expected.
func TestWritesNameWhatFailed(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	unexpected := errors.New("unexpected")
	add := func(w *writes, name string) { w.add(name, "select 1", nil, nil) }
	for name, second := range map[string]func(*writes){
		"a result": func(w *writes) {
			w.add("second", "select 2", nil, func(pgconn.CommandTag) error { return unexpected })
		},
		"rows": func(w *writes) {
			w.addQuery("second", "select 2", nil, func(pgx.Rows) error { return unexpected })
		},
		"a statement": func(w *writes) { w.add("second", "select 1/(select 0)", nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(t.Context()) }()
			var w writes
			add(&w, "first")
			second(&w)
			add(&w, "third")
			if err := w.send(t.Context(), tx); err == nil || !strings.HasPrefix(err.Error(), "second: ") {
				t.Errorf("%v", err)
			}
		})
	}
}
