package ledger_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/taskledger/taskledger/ledger"
)

func TestShardSet(t *testing.T) {
	for _, c := range []struct {
		text, canonical string
		len             int
	}{
		{text: "", canonical: "", len: 0},
		{text: "all", canonical: "all", len: 64},
		{text: "0-63", canonical: "all", len: 64},
		{text: "7", canonical: "7", len: 1},
		{text: "63", canonical: "63", len: 1},
		{text: "40,0-15", canonical: "0-15,40", len: 17},
		{text: "1,2,3", canonical: "1-3", len: 3},
		{text: "0-10,5-20", canonical: "0-20", len: 21},
		{text: "0,2", canonical: "0,2", len: 2},
	} {
		s, err := ledger.ParseShardSet(c.text)
		if err != nil || s.String() != c.canonical || s.Len() != c.len || len(slices.Collect(s.Shards())) != c.len {
			t.Errorf("%q: %q with %d shards, error %v; want %q with %d", c.text, s, s.Len(), err, c.canonical, c.len)
		}
	}
	for _, text := range []string{"64", "-1", "1-", "-", ",", "1,,2", "5-4", "0-64", "a", " 1", "ALL", "256", "1-2-3"} {
		var invalid *ledger.InvalidError
		if _, err := ledger.ParseShardSet(text); !errors.As(err, &invalid) {
			t.Errorf("%q: error %v, want an InvalidError", text, err)
		}
	}
	for _, shard := range []ledger.Shard{-1, 64} {
		if ledger.AllShards.Has(shard) {
			t.Errorf("AllShards.Has(%d) is true", shard)
		}
	}
}

func FuzzShardSet(f *testing.F) {
	f.Add(uint64(0))
	f.Add(^uint64(0))
	f.Add(uint64(0x5555_0000_ffff_8001))
	f.Fuzz(func(t *testing.T, bits uint64) {
		s := ledger.ShardSet(bits)
		back, err := ledger.ParseShardSet(s.String())
		if err != nil || back != s {
			t.Errorf("%#x is %q, which is parsed as %#x, %v", bits, s, uint64(back), err)
		}
		var sum ledger.ShardSet
		for shard := range s.Shards() {
			sum |= ledger.ShardRange(shard, shard)
		}
		if sum != s {
			t.Errorf("%q has the shards %q", s, sum)
		}
	})
}
