package ledger

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// maxNesting is the maximum depth of the JSON of args, data or meta. Deeper JSON is invalid, because it could
// exhaust the database's stack, which would abort the caller's transaction.
const maxNesting = 512

// checkJSON returns an [*InvalidError] if text is not one JSON value that the database accepts.
func checkJSON(field string, text json.RawMessage) error {
	if text == nil {
		return nil
	}
	if err := checkNesting(field, text); err != nil {
		return err
	}
	if !utf8.Valid(text) {
		return &InvalidError{Field: field, Rule: "must be valid UTF-8"}
	}
	if !json.Valid(text) {
		var v any
		rule := "must be JSON: " + fmt.Sprint(json.Unmarshal(text, &v))
		return &InvalidError{Field: field, Value: string(text), Rule: rule}
	}
	return nil
}

// IsJSON reports whether payload is valid as args: one JSON value in UTF-8 that nests at most 512
// levels deep. Other payloads can be enqueued with [EnqueueOptions].Binary.
func IsJSON(payload []byte) bool { return payload != nil && checkJSON("", payload) == nil }

// checkMeta is checkJSON for a meta. It also rejects the escape \u0000 and halves of surrogate pairs. The database can
// store but not decode them, so every query over meta would fail at this event.
func checkMeta(text json.RawMessage) error {
	if err := checkJSON("meta", text); err != nil {
		return err
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		i++ // the escaped character
		if text[i] != 'u' {
			continue
		}
		unit := codeUnit(text[i+1:])
		i += 4
		switch {
		case unit == 0, 0xDC00 <= unit && unit < 0xE000:
			return &InvalidError{Field: "meta", Rule: fmt.Sprintf(`must not contain the escape \u%04x`, unit)}
		case 0xD800 <= unit && unit < 0xDC00:
			rest := text[i+1:]
			if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' || codeUnit(rest[2:])&0xFC00 != 0xDC00 {
				rule := fmt.Sprintf(`must not contain the escape \u%04x without its second half`, unit)
				return &InvalidError{Field: "meta", Rule: rule}
			}
			i += 6
		}
	}
	return nil
}

// codeUnit parses the four hex digits after \u in valid JSON.
func codeUnit(digits []byte) uint64 {
	unit, _ := strconv.ParseUint(string(digits[:4]), 16, 16)
	return unit
}

// checkNesting returns an [*InvalidError] if text nests too deep. Most texts contain fewer brackets than the allowed
// levels; counting them costs a tenth of nestingDepth.
func checkNesting(field string, text []byte) error {
	if bytes.Count(text, []byte{'{'})+bytes.Count(text, []byte{'['}) <= maxNesting {
		return nil
	}
	depth := nestingDepth(text)
	if depth <= maxNesting {
		return nil
	}
	rule := fmt.Sprintf("must nest at most %d levels deep, got %d", maxNesting, depth)
	return &InvalidError{Field: field, Rule: rule}
}

// nestingDepth returns the maximum depth of the brackets of text outside of strings.
func nestingDepth(text []byte) int {
	depth, deepest := 0, 0
	inString := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString:
			if c == '\\' {
				i++
			} else if c == '"' {
				inString = false
			}
		case c == '"':
			inString = true
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}

// encodeBinary returns bytes that are not JSON in their stored form, a JSON string of base64.
func encodeBinary(payload []byte) json.RawMessage {
	text := make([]byte, 0, base64.StdEncoding.EncodedLen(len(payload))+2)
	text = append(text, '"')
	text = base64.StdEncoding.AppendEncode(text, payload)
	return append(text, '"')
}
