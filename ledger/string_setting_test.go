package ledger_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
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

// Under the setting array_nulls = off, NULL in an array is a text. Many tasks at once have their actors all the same,
// or are refused with the cure.
func TestArrayNullsAreOff(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t)
	ledgertest.ExecAsOwner(t, db, "alter database "+db.Config().ConnConfig.Database+" set array_nulls = off")
	db.Reset()
	entries := []ledger.Entry{
		{Key: ledger.Key{Kind: "coupon.send", BizID: "1"}},
		{Key: ledger.Key{Kind: "coupon.send", BizID: "2"}, Options: &ledger.EnqueueOptions{Actor: "alice"}},
	}
	all, err := ledger.EnqueueMany(t.Context(), db, entries)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{db.Config().ConnConfig.User, "alice"} {
		events, err := ledger.History(t.Context(), db, all[i].Key)
		if err != nil || events[0].Actor != want {
			t.Errorf("%s has the actor %q, want %q: %v", all[i].Key, events[0].Actor, want, err)
		}
	}
	for i := range entries {
		entries[i].Key.BizID += "-tagged"
	}
	entries[1].Options.Meta.Tags = []string{"vip"}
	_, err = ledger.EnqueueMany(t.Context(), db, entries)
	if err == nil || !strings.Contains(err.Error(), "array_nulls = off: reset it") {
		t.Errorf("got %v", err)
	}
}

// Nor can it change the comparison of args.
func TestSameArgsUnderOtherStringSettings(t *testing.T) {
	t.Parallel()
	db := ledgertest.As(t, ledgertest.Pool(t, ledgertest.Owner), "producer")
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "set local standard_conforming_strings = off"); err != nil {
			return err
		}
		for i, c := range comparedArgs {
			const query = "select same_args from taskledger.enqueue('coupon.send', $1, $2)"
			var same bool
			for _, args := range []string{c.was, c.is} {
				if err := tx.QueryRow(t.Context(), query, strconv.Itoa(i), jsonOrNone(args)).Scan(&same); err != nil {
					return err
				}
			}
			if same != c.same {
				t.Errorf("%s, then %s: %v", c.was, c.is, same)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
