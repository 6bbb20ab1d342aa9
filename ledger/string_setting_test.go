package ledger_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A producer cannot change what taskledger.enqueue checks by the setting with which its body is parsed.
func TestChecksUnderOtherStringSettings(t *testing.T) {
	t.Parallel()
	db := ledgertest.As(t, ledgertest.Pool(t, ledgertest.Owner), "producer")
	for name, tc := range map[string]struct {
		kind, biz, args string
		ok              bool
	}{
		"dots":            {kind: "a.b", biz: "1", args: `{}`, ok: true},
		"a slash":         {kind: "a/b", biz: "1", args: `{}`},
		"a space":         {kind: "a b", biz: "1", args: `{}`},
		"a control":       {kind: "a", biz: "x\ny", args: `{}`},
		"quoted brackets": {kind: "a", biz: "2", args: `{"x":"\"` + strings.Repeat("[", 1100) + `"}`, ok: true},
		"too many levels": {kind: "a", biz: "3", args: strings.Repeat("[", 600) + strings.Repeat("]", 600)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "set local standard_conforming_strings = off"); err != nil {
					return err
				}
				_, err := tx.Exec(t.Context(), "select taskledger.enqueue($1, $2, $3)", tc.kind, tc.biz, tc.args)
				return err
			})
			if tc.ok && err != nil || !tc.ok && !pgerr.Is(err, "22023") {
				t.Errorf("%v, want ok %v", err, tc.ok)
			}
		})
	}
}
