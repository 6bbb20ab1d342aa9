package ledger

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a key, in bytes.
const (
	MaxKindLen  = 128
	MaxBizIDLen = 255
)

// Shards is the number of shards that tasks are spread over. It is part of the wire format:
// it never changes.
const Shards = 64

// Kind says what a task does: words of A-Z a-z 0-9 _ - joined by dots, at most [MaxKindLen]
// bytes, such as "coupon.send".
type Kind string

// Validate returns an [InvalidError] naming the rule that k breaks, or nil.
func (k Kind) Validate() error {
	switch {
	case k == "":
		return &InvalidError{Field: "kind", Rule: "must not be empty"}
	case len(k) > MaxKindLen:
		return &InvalidError{Field: "kind", Value: string(k), Rule: fmt.Sprintf("must have at most %d bytes, has %d", MaxKindLen, len(k))}
	}
	for word := range strings.SplitSeq(string(k), ".") {
		if word == "" {
			return &InvalidError{Field: "kind", Value: string(k), Rule: "must be words joined by single dots"}
		}
		for i := range len(word) {
			if !isKindByte(word[i]) {
				return &InvalidError{Field: "kind", Value: string(k), Rule: "may hold only A-Z a-z 0-9 _ - and dots"}
			}
		}
	}
	return nil
}

func isKindByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// BizID says for which business object a task is done: 1 to [MaxBizIDLen] bytes of UTF-8
// without control characters, such as an order number.
type BizID string

// Validate returns an [InvalidError] naming the rule that b breaks, or nil.
func (b BizID) Validate() error {
	switch {
	case b == "":
		return &InvalidError{Field: "biz_id", Rule: "must not be empty"}
	case len(b) > MaxBizIDLen:
		return &InvalidError{Field: "biz_id", Value: string(b), Rule: fmt.Sprintf("must have at most %d bytes, has %d", MaxBizIDLen, len(b))}
	case !utf8.ValidString(string(b)):
		return &InvalidError{Field: "biz_id", Value: string(b), Rule: "must be valid UTF-8"}
	case strings.ContainsFunc(string(b), unicode.IsControl):
		return &InvalidError{Field: "biz_id", Value: string(b), Rule: "must not contain control characters"}
	}
	return nil
}

// Shard returns the shard of a task whose producer named none: the first 32 bits of
// md5(biz_id), modulo [Shards]. The SQL function taskledger.shard_of answers the same.
func (b BizID) Shard() Shard {
	sum := md5.Sum([]byte(b)) // spreads load; nothing rests on its strength
	return Shard(binary.BigEndian.Uint32(sum[:4]) % Shards)
}

// Shard is a number from 0 to [Shards]-1 that spreads tasks over workers.
type Shard int

// Validate returns an [InvalidError] if s is out of range.
func (s Shard) Validate() error {
	if s < 0 || s >= Shards {
		return &InvalidError{Field: "shard", Value: fmt.Sprint(int(s)), Rule: fmt.Sprintf("must be 0 to %d", Shards-1)}
	}
	return nil
}

// Key names one task, for ever. Keys are comparable.
type Key struct {
	Kind  Kind  `json:"kind"`
	BizID BizID `json:"biz_id"`
}

// Validate returns an [InvalidError] naming the part of k that is invalid and why, or nil.
func (k Key) Validate() error {
	if err := k.Kind.Validate(); err != nil {
		return err
	}
	return k.BizID.Validate()
}

// Compare orders keys by kind, then biz_id, bytewise, as the database does.
func (k Key) Compare(other Key) int {
	if c := strings.Compare(string(k.Kind), string(other.Kind)); c != 0 {
		return c
	}
	return strings.Compare(string(k.BizID), string(other.BizID))
}

// String returns "kind/biz_id". A kind holds no slash, so the first one ends it.
func (k Key) String() string { return string(k.Kind) + "/" + string(k.BizID) }
