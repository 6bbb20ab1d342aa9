package api_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/crashtest"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
)

// Tasks and acts that were acknowledged outlive a crash of PostgreSQL, whatever synchronous_commit is.
func TestAnswersOutliveACrash(t *testing.T) {
	t.Parallel()
	server := crashtest.New(t)
	db := server.Pool(databaseRoles...)
	s := serveOn(t, db, nil)
	ctx := t.Context()
	call := func(role api.Role, path, body string, status int) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			if a := s.call(role, "POST", path, body); a.status != status {
				t.Fatalf("%d: %s", a.status, a.body)
			}
		}
	}
	exists := func(id ledger.BizID) func() (bool, error) {
		return func() (bool, error) {
			k := ledger.Key{Kind: "a.b", BizID: id}
			states, err := ledger.States(ctx, db, []ledger.Key{k})
			return states[k] == ledger.StateAvailable, err
		}
	}
	isPaused := func() (bool, error) {
		paused, err := operator.ReadPaused(ctx, db, "", lists.All)
		return len(paused) > 0, err
	}
	isLimited := func() (bool, error) {
		limits, err := ledger.ReadLimits(ctx, db, "", lists.All)
		return len(limits) > 0, err
	}
	var made api.Token
	isValid := func() (bool, error) {
		all, err := api.ReadTokens(ctx, db)
		return slices.ContainsFunc(all, func(t api.Token) bool { return t.ID == made.ID && t.RevokedAt.IsZero() }), err
	}
	pause := call(api.Admin, "/v1/kinds/a.b:pause", `{"reason":"x"}`, http.StatusOK)
	limit := func(t *testing.T) {
		t.Helper()
		l := ledger.Limit{Kind: "a.b", MaxWaiting: 9, Policy: ledger.Reject}
		if err := ledger.SetLimit(ctx, db, l, ""); err != nil {
			t.Fatal(err)
		}
	}
	create := func(t *testing.T) {
		t.Helper()
		var err error
		if made, _, err = api.CreateToken(ctx, db, api.TokenOptions{Name: "till", Role: api.Viewer}); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name   string
		before func(*testing.T) // is on disk before act
		act    func(*testing.T)
		holds  func() (bool, error)
		isGone bool
	}{
		{name: "task", act: call(api.Producer, "/v1/tasks", `{"kind":"a.b","biz_id":"1"}`, http.StatusCreated),
			holds: exists("1")},
		{name: "batch", act: call(api.Producer, "/v1/tasks:batch", `{"tasks":[{"kind":"a.b","biz_id":"2"}]}`,
			http.StatusOK), holds: exists("2")},
		{name: "pause", act: pause, holds: isPaused},
		{name: "resume", before: pause, act: call(api.Admin, "/v1/kinds/a.b:resume", `{"reason":"x"}`, http.StatusOK),
			holds: isPaused, isGone: true},
		{name: "limit", act: limit, holds: isLimited},
		{name: "no limit", before: limit, act: func(t *testing.T) {
			if _, err := ledger.RemoveLimit(ctx, db, "a.b"); err != nil {
				t.Fatal(err)
			}
		}, holds: isLimited, isGone: true},
		{name: "token", act: create, holds: isValid},
		{name: "revocation", before: create, act: func(t *testing.T) {
			if _, err := api.RevokeToken(ctx, db, made.ID, ""); err != nil {
				t.Fatal(err)
			}
		}, holds: isValid, isGone: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.before != nil {
				test.before(t)
			}
			server.Flush()
			test.act(t)
			server.Crash(db)
			if holds, err := test.holds(); err != nil || holds == test.isGone {
				t.Errorf("the crash has undone it: %v", err)
			}
		})
	}
}
