package ledger_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// An operator sets, replaces, lists and removes weights. Other roles cannot, and nothing out of bounds is stored.
func TestPartitionWeights(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	operator := ledgertest.As(t, owner, "operator")
	ctx := t.Context()
	for _, w := range []struct {
		partition string
		weight    float64
	}{{"b", 3}, {"a", 0.01}, {"b", 100}, {"c", 1.0 / 3}} {
		if err := ledger.SetPartitionWeight(ctx, operator, w.partition, w.weight, "op"); err != nil {
			t.Fatal(err)
		}
	}
	all, err := ledger.ReadPartitionWeights(ctx, operator, "", 10)
	if err != nil || len(all) != 3 || all[0].Weight != 0.01 || all[1].Weight != 100 || all[2].Weight != 1.0/3 ||
		all[1].Partition != "b" || all[1].Actor != "op" || all[1].Updated.IsZero() {
		t.Errorf("%+v, %v", all, err)
	}
	if page, err := ledger.ReadPartitionWeights(ctx, operator, "a", 1); err != nil || len(page) != 1 ||
		page[0].Partition != "b" {
		t.Errorf("the second page: %+v, %v", page, err)
	}
	for _, want := range []bool{true, false} {
		if isKnown, err := ledger.RemovePartitionWeight(ctx, operator, "b"); isKnown != want || err != nil {
			t.Errorf("removed: %t, %v; want %t", isKnown, err, want)
		}
	}
	for _, w := range []struct {
		partition string
		weight    float64
	}{
		{"", 1}, {"a\n", 1}, {strings.Repeat("a", 65), 1}, {"a", 0}, {"a", -1}, {"a", 0.009}, {"a", 100.1},
		{"a", math.NaN()}, {"a", math.Inf(1)},
	} {
		var invalid *ledger.InvalidError
		err := ledger.SetPartitionWeight(ctx, operator, w.partition, w.weight, "op")
		if !errors.As(err, &invalid) {
			t.Errorf("%q, %v: %v, want an InvalidError", w.partition, w.weight, err)
		}
	}
	for _, role := range []string{"producer", "worker", "relay", "reader"} {
		other := ledgertest.As(t, owner, role)
		if err := ledger.SetPartitionWeight(ctx, other, "a", 2, "op"); err == nil {
			t.Errorf("%s has set a weight", role)
		}
		if _, err := ledger.RemovePartitionWeight(ctx, other, "a"); err == nil {
			t.Errorf("%s has removed a weight", role)
		}
	}
}
