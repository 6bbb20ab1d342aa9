package ledger

import (
	"encoding/json"
)

// Exported for tests: fuzz tests call the functions, and a test checks the plan of EnqueueSQL.
var (
	CheckJSON    = checkJSON
	Nesting      = nestingDepth
	EncodeBinary = encodeBinary
	EnqueueSQL   = enqueueSQL
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
