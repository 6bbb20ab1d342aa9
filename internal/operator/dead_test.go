package operator_test

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/servicetest"
)

// Pages have each group of dead tasks once, with as many of its tasks as the limit allows.
func TestFindDead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec(`
		insert into taskledger.task (kind, biz_id, shard, state, aside, version, attempt, failures, enqueued_at,
		                             updated_at, error, fingerprint)
		select 'kind-' || g % 3, g || '-' || i, 0, 'dead', 'dead', 4, 1, 1, now(),
		       '2026-01-01Z'::timestamptz + i * interval '1 h', 'error ' || i, 'f' || g / 2
		  from generate_series(1, 60) g, generate_series(1, 1 + g) i`)
	seen := make(map[string]operator.DeadGroup)
	search := operator.DeadSearch{Groups: 7, Tasks: 20}
	for page := 0; ; page++ {
		groups, hasMore, err := operator.FindDead(t.Context(), b.DB, search)
		if err != nil || len(groups) > 7 || page > 60 {
			t.Fatalf("page %d: %d groups, %v", page, len(groups), err)
		}
		for _, g := range groups {
			seen[g.Fingerprint+" "+string(g.Kind)] = g
			search.AfterFingerprint, search.AfterKind = g.Fingerprint, g.Kind
		}
		if !hasMore {
			break
		}
	}
	all := servicetest.Try(operator.ReadDead(t.Context(), b.DB, ""))(t)
	if len(seen) != len(all) || len(all) != 60 {
		t.Errorf("pages have %d groups, want %d", len(seen), len(all))
	}
	for _, want := range all {
		got := seen[want.Fingerprint+" "+string(want.Kind)]
		if got.More != (want.Tasks > 20) || got.Tasks != min(want.Tasks, 20) {
			t.Errorf("%s: %+v, want %+v", want.Fingerprint, got, want)
		}
		if got.More = false; want.Tasks <= 20 && got != want {
			t.Errorf("%s: %+v, want %+v", want.Fingerprint, got, want)
		}
	}
	first, _, err := operator.FindDead(t.Context(), b.DB, operator.DeadSearch{Groups: 1,
		Since: time.Date(2026, 1, 1, 2, 0, 0, 0, time.UTC)})
	if err != nil || first[0].Hours != [24]int64{1} { // the other one of its tasks died before
		t.Errorf("got %+v, %v", first, err)
	}
	ofKind := servicetest.Try(operator.ReadDead(t.Context(), b.DB, "kind-1"))(t)
	groups, hasMore, err := operator.FindDead(t.Context(), b.DB, operator.DeadSearch{Kind: "kind-1", Groups: 20})
	if err != nil || hasMore || len(groups) != len(ofKind) || len(groups) != 20 || groups[0].Kind != "kind-1" {
		t.Errorf("%d groups of the kind, want %d; more: %t, %v", len(groups), len(ofKind), hasMore, err)
	}
	for _, invalid := range []operator.DeadSearch{{Groups: 101}, {Groups: -1}, {Tasks: 10_001}, {AfterKind: "\xff"},
		{Kind: "\xff"}} {
		if _, _, err := operator.FindDead(t.Context(), b.DB, invalid); err == nil {
			t.Errorf("%+v: no error", invalid)
		}
	}
}
