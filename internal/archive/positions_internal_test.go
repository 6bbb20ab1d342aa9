package archive

import (
	"slices"
	"testing"

	"github.com/taskledger/taskledger/ledger"
)

// A range that no volume contains shows as a gap between those that were exported.
func TestPositions(t *testing.T) {
	volumes := []*Manifest{
		{Plan: Plan{Content: Range, From: 11, To: 20}},
		{Plan: Plan{Content: Range, From: 1, To: 10}},
		{Plan: Plan{Content: Range, From: 31, To: 40}},
		{Plan: Plan{Content: Range, From: 21, To: 30, Kinds: []ledger.Kind{"coupon.send"}}},
		{Plan: Plan{Content: Tasks}},
	}
	if all, want := positions(volumes), []Positions{{1, 20}, {31, 40}}; !slices.Equal(all, want) {
		t.Errorf("%v, want %v", all, want)
	}
}
