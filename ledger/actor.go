package ledger

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxActorLen is the longest name of an actor, in bytes.
const MaxActorLen = 255

func checkActor(actor string) error {
	switch {
	case len(actor) > MaxActorLen:
		return &InvalidError{Field: "actor", Value: actor, Rule: fmt.Sprintf("must have at most %d bytes, has %d", MaxActorLen, len(actor))}
	case !utf8.ValidString(actor) || strings.ContainsFunc(actor, unicode.IsControl):
		return &InvalidError{Field: "actor", Value: actor, Rule: "must be UTF-8 without control characters"}
	}
	return nil
}
