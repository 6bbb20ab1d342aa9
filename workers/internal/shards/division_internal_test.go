package shards

import (
	"fmt"
	"testing"

	"github.com/taskledger/taskledger/ledger"
)

// The groups contain each shard exactly once. The members' fair parts add up to all groups, and differ by at most one
// group.
func TestFairParts(t *testing.T) {
	for n := 1; n <= ledger.Shards; n++ {
		var all ledger.ShardSet
		for _, group := range divide(n) {
			if all.Overlaps(group) || group == 0 {
				t.Fatalf("%d groups: %s is empty or taken", n, group)
			}
			all |= group
		}
		if all != ledger.AllShards {
			t.Fatalf("%d groups make %s", n, all)
		}
		var members []string
		for m := range 70 {
			members = append(members, fmt.Sprintf("worker-%d", m))
			sum, least, most := 0, n, 0
			for _, self := range members {
				part := fairPart("a.kind", members, self, n)
				sum, least, most = sum+part, min(least, part), max(most, part)
			}
			if sum != n || most > least+1 {
				t.Fatalf("%d groups, %d members: %d in all, from %d to %d", n, len(members), sum, least, most)
			}
		}
	}
}
