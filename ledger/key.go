package ledger

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Maximum lengths of the parts of a key, in bytes.
const (
	MaxKindLen  = 128
	MaxBizIDLen = 255
)

// Shards is the number of shards. It is part of the wire format and never changes.
const Shards = 64

// Kind names the work of a task, such as "coupon.send": words of A-Z a-z 0-9 _ - joined by dots,
// at most [MaxKindLen] bytes.
type Kind string

// Validate returns nil, or an [*InvalidError] that names the rule k breaks.
func (k Kind) Validate() error {
	switch {
	case k == "":
		return &InvalidError{Field: "kind", Rule: "must not be empty"}
	case len(k) > MaxKindLen:
		rule := fmt.Sprintf("must have at most %d bytes, got %d", MaxKindLen, len(k))
		return &InvalidError{Field: "kind", Value: string(k), Rule: rule}
	}
	for word := range strings.SplitSeq(string(k), ".") {
		if word == "" {
			return &InvalidError{Field: "kind", Value: string(k), Rule: "must be words joined by single dots"}
		}
		for i := range len(word) {
			if !isKindByte(word[i]) {
				rule := "must contain only A-Z a-z 0-9 _ - and dots"
				return &InvalidError{Field: "kind", Value: string(k), Rule: rule}
			}
		}
	}
	return nil
}

func isKindByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// BizID names the business object of a task, such as an order number: 1 to [MaxBizIDLen] bytes of UTF-8
// without control characters.
type BizID string

// Validate returns nil, or an [*InvalidError] that names the rule b breaks.
func (b BizID) Validate() error {
	if b == "" {
		return &InvalidError{Field: "biz_id", Rule: "must not be empty"}
	}
	return checkText("biz_id", string(b), MaxBizIDLen)
}

// checkText returns an [*InvalidError] if text is longer than maxLen bytes, not UTF-8, or contains control characters.
func checkText(field, text string, maxLen int) error {
	switch {
	case len(text) > maxLen:
		rule := fmt.Sprintf("must have at most %d bytes, got %d", maxLen, len(text))
		return &InvalidError{Field: field, Value: text, Rule: rule}
	case !utf8.ValidString(text):
		return &InvalidError{Field: field, Value: text, Rule: "must be valid UTF-8"}
	case strings.ContainsFunc(text, unicode.IsControl):
		return &InvalidError{Field: field, Value: text, Rule: "must not contain control characters"}
	}
	return nil
}

// Shard returns the default shard of a task: the first 32 bits of md5(biz_id), modulo [Shards].
// The SQL function taskledger.shard_of returns the same.
func (b BizID) Shard() Shard {
	sum := md5.Sum([]byte(b)) // to spread load, not for security
	return Shard(binary.BigEndian.Uint32(sum[:4]) % Shards)
}

// Shard is a number from 0 to [Shards]-1 that spreads tasks over workers.
type Shard int

// Validate returns nil, or an [*InvalidError] if s is out of range.
func (s Shard) Validate() error {
	if s < 0 || s >= Shards {
		rule := fmt.Sprintf("must be between 0 and %d", Shards-1)
		return &InvalidError{Field: "shard", Value: fmt.Sprint(int(s)), Rule: rule}
	}
	return nil
}

// Key names one task, even after the task has finished. Keys are comparable.
type Key struct {
	Kind  Kind  `json:"kind"`
	BizID BizID `json:"biz_id"`
}

// Validate returns nil, or an [*InvalidError] that names the invalid part of k and the rule it breaks.
func (k Key) Validate() error {
	if err := k.Kind.Validate(); err != nil {
		return err
	}
	return k.BizID.Validate()
}

// ValidateStored returns nil, or an [*InvalidError] if the kind cannot select stored tasks: PostgreSQL cannot store
// it, or it is a pattern such as coupon.*, which would select none. The owner of the schema may have inserted a kind
// that [Kind.Validate] rejects.
func (k Kind) ValidateStored() error {
	if strings.Contains(string(k), "*") {
		return &InvalidError{Field: "kind", Value: string(k), Rule: "must be one kind, not a pattern with *"}
	}
	return checkStorable("kind", string(k))
}

// ValidateStored returns nil, or an [*InvalidError] if the key cannot be stored. The owner of the schema may
// have inserted a key that [Key.Validate] rejects.
func (k Key) ValidateStored() error {
	if err := checkStorable("kind", string(k.Kind)); err != nil {
		return err
	}
	return checkStorable("biz_id", string(k.BizID))
}

// checkStorable returns an [*InvalidError] if PostgreSQL cannot store text.
func checkStorable(field, text string) error {
	switch {
	case !utf8.ValidString(text):
		return &InvalidError{Field: field, Value: text, Rule: "must be valid UTF-8"}
	case strings.Contains(text, "\x00"):
		return &InvalidError{Field: field, Value: text, Rule: "must not contain NUL"}
	}
	return nil
}

// Compare returns a negative number if k sorts before other, 0 if they are equal, and a positive number
// otherwise. Keys sort by kind, then by biz_id, bytewise, as collation "C" of the database does.
func (k Key) Compare(other Key) int {
	if c := strings.Compare(string(k.Kind), string(other.Kind)); c != 0 {
		return c
	}
	return strings.Compare(string(k.BizID), string(other.BizID))
}

// String returns "kind/biz_id". A kind contains no slash, so the first slash ends it.
func (k Key) String() string { return string(k.Kind) + "/" + string(k.BizID) }
