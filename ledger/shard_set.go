package ledger

import (
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// ShardSet is a set of shards. The zero value is empty. As text and in JSON it is "all", "" if empty, or a
// list of numbers and ranges such as "0-15,40".
type ShardSet uint64

// AllShards is the set of all shards.
const AllShards = ^ShardSet(0)

// ShardRange returns the set of the shards from first to last, both included.
func ShardRange(first, last Shard) ShardSet {
	var s ShardSet
	for shard := max(first, 0); shard <= min(last, Shards-1); shard++ {
		s |= 1 << shard
	}
	return s
}

// ParseShardSet is the inverse of [ShardSet.String]. It accepts "all", "", and numbers and ranges in any order,
// separated by commas. It returns an [*InvalidError] for any other text.
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
			rule := fmt.Sprintf("must be numbers between 0 and %d and ranges of them, such as 0-15,40", Shards-1)
			return 0, &InvalidError{Field: "shards", Value: text, Rule: rule}
		}
		s |= ShardRange(Shard(first), Shard(last))
	}
	return s, nil
}

// Has reports whether shard is in s.
func (s ShardSet) Has(shard Shard) bool { return shard.Validate() == nil && s>>shard&1 == 1 }

// Len returns the number of shards in s.
func (s ShardSet) Len() int { return bits.OnesCount64(uint64(s)) }

// Shards returns the shards in s, in ascending order.
func (s ShardSet) Shards() iter.Seq[Shard] {
	return func(yield func(Shard) bool) {
		for rest := uint64(s); rest != 0; rest &= rest - 1 {
			if !yield(Shard(bits.TrailingZeros64(rest))) {
				return
			}
		}
	}
}

// String returns the shortest text for s, such as "0-15,40".
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

// MarshalText returns [ShardSet.String].
func (s ShardSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText sets s as [ParseShardSet] does.
func (s *ShardSet) UnmarshalText(text []byte) error {
	var err error
	*s, err = ParseShardSet(string(text))
	return err
}
