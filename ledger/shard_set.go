package ledger

import (
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// ShardSet is a set of shards. The zero value is empty. As text, and in JSON, it is "all", "" or
// what it holds, such as "0-15,40".
type ShardSet uint64

// AllShards holds every shard.
const AllShards = ^ShardSet(0)

// ShardRange returns the set of shards from first to last.
func ShardRange(first, last Shard) ShardSet {
	var s ShardSet
	for shard := max(first, 0); shard <= min(last, Shards-1); shard++ {
		s |= 1 << shard
	}
	return s
}

// ParseShardSet reads numbers and ranges with commas between them, "all", or "" for none. It is the
// inverse of [ShardSet.String], and takes them in any order. It returns an [*InvalidError].
func ParseShardSet(text string) (ShardSet, error) {
	switch text {
	case "":
		return 0, nil
	case "all":
		return AllShards, nil
	}
	var s ShardSet
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 8)
		last, err2 := strconv.ParseUint(to, 10, 8)
		if err1 != nil || err2 != nil || first > last || last >= Shards {
			return 0, &InvalidError{Field: "shards", Value: text, Rule: fmt.Sprintf("must be numbers from 0 to %d and ranges of them, such as 0-15,40", Shards-1)}
		}
		s |= ShardRange(Shard(first), Shard(last))
	}
	return s, nil
}

// Has reports whether s holds a shard.
func (s ShardSet) Has(shard Shard) bool { return shard.Validate() == nil && s>>shard&1 == 1 }

// Overlaps reports whether some shard is in both.
func (s ShardSet) Overlaps(other ShardSet) bool { return s&other != 0 }

// Len is the number of shards in s.
func (s ShardSet) Len() int { return bits.OnesCount64(uint64(s)) }

// Shards returns what s holds, in ascending order.
func (s ShardSet) Shards() iter.Seq[Shard] {
	return func(yield func(Shard) bool) {
		for rest := uint64(s); rest != 0; rest &= rest - 1 {
			if !yield(Shard(bits.TrailingZeros64(rest))) {
				return
			}
		}
	}
}

// String returns the shortest text for s.
func (s ShardSet) String() string {
	if s == AllShards {
		return "all"
	}
	var b strings.Builder
	for first := Shard(0); first < Shards; first++ {
		if !s.Has(first) {
			continue
		}
		last := first
		for s.Has(last + 1) {
			last++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(first)))
		if last > first {
			b.WriteString("-" + strconv.Itoa(int(last)))
		}
		first = last
	}
	return b.String()
}

// MarshalText implements [encoding.TextMarshaler].
func (s ShardSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *ShardSet) UnmarshalText(text []byte) error {
	var err error
	*s, err = ParseShardSet(string(text))
	return err
}
