package ledger

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// MaxNesting is how deep the JSON of args, data or meta may nest. Deeper JSON would exhaust
// the database's stack and abort the caller's transaction, so it is refused before sending.
const MaxNesting = 512

// checkJSON returns an [InvalidError] if text is not one JSON value that the database takes.
func checkJSON(field string, text json.RawMessage) error {
	if text == nil {
		return nil
	}
	if depth := nesting(text); depth > MaxNesting {
		return &InvalidError{Field: field, Rule: fmt.Sprintf("must nest at most %d deep, nests %d deep", MaxNesting, depth)}
	}
	if !utf8.Valid(text) {
		return &InvalidError{Field: field, Rule: "must be valid UTF-8"}
	}
	if !json.Valid(text) {
		var v any
		return &InvalidError{Field: field, Value: string(text), Rule: "must be JSON: " + fmt.Sprint(json.Unmarshal(text, &v))}
	}
	return nil
}

// IsJSON reports whether the database takes payload as the JSON of args: one value in UTF-8 that
// nests at most [MaxNesting] deep. Anything else can be enqueued with [EnqueueOptions].Binary.
func IsJSON(payload []byte) bool { return payload != nil && checkJSON("", payload) == nil }

// checkMeta is checkJSON for a meta. It refuses escapes that the database stores but cannot look
// into, \u0000 and halves of surrogate pairs: somebody's query over meta would end at this event.
func checkMeta(text json.RawMessage) error {
	if err := checkJSON("meta", text); err != nil {
		return err
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		i++ // to what is escaped
		if text[i] != 'u' {
			continue
		}
		unit := codeUnit(text[i+1:])
		i += 4
		switch {
		case unit == 0, 0xDC00 <= unit && unit < 0xE000:
			return &InvalidError{Field: "meta", Rule: fmt.Sprintf(`must not hold the escape \u%04x`, unit)}
		case 0xD800 <= unit && unit < 0xDC00:
			if rest := text[i+1:]; len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' || codeUnit(rest[2:])&0xFC00 != 0xDC00 {
				return &InvalidError{Field: "meta", Rule: fmt.Sprintf(`must not hold the escape \u%04x alone`, unit)}
			}
			i += 6
		}
	}
	return nil
}

// codeUnit reads four hex digits, which valid JSON has after \u.
func codeUnit(digits []byte) uint64 {
	unit, _ := strconv.ParseUint(string(digits[:4]), 16, 16)
	return unit
}

// nesting returns how deep the brackets of text nest outside of strings.
func nesting(text []byte) int {
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

// encodeBinary returns bytes that are not JSON in the form they are stored in.
func encodeBinary(payload []byte) json.RawMessage {
	text := make([]byte, 0, base64.StdEncoding.EncodedLen(len(payload))+2)
	text = append(text, '"')
	text = base64.StdEncoding.AppendEncode(text, payload)
	return append(text, '"')
}
