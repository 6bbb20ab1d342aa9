package ledger

import (
	"encoding/json"
)

// What only fuzz tests call directly.
var (
	CheckJSON    = checkJSON
	Nesting      = nestingDepth
	EncodeBinary = encodeBinary
	EnqueueSQL   = enqueueSQL // its plan is tested
)

// Accepts returns why an enqueue of these args would be refused whose meta is this text, before
// anything is sent.
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
