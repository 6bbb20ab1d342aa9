package ledger

import (
	"encoding/json"
)

// Exported for fuzz tests.
var (
	CheckJSON    = checkJSON
	Nesting      = nestingDepth
	EncodeBinary = encodeBinary
)

// Accepts returns the error of an enqueue with these args and this meta before it sends anything, nil if they are
// valid.
func Accepts(args, meta json.RawMessage) error {
	if err := checkMeta(meta); err != nil {
		return err
	}
	m, err := ParseMeta(meta)
	if err != nil {
		return err
	}
	_, err = newFirstEvent(Entry{Key: Key{Kind: "k", BizID: "1"}, Args: args, Options: &EnqueueOptions{Meta: m}})
	return err
}

// Follows reports whether an event of type t may follow one of type last, and whether it then begins an attempt.
func Follows(t, last EventType) (may, begins bool) {
	return t.canBeAppended(last.State()), t.beginsAttempt(last.State())
}
