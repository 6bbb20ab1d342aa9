package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"
)

// maxFingerprinted is how much of a message counts.
const maxFingerprinted = 4 << 10

// varying is what may differ between two messages about the same thing.
var varying = regexp.MustCompile("\"[^\"]*\"|`[^`]*`|" + `\B'[^']*'|` +
	`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|` +
	`0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b|[0-9]+(?:[.,:][0-9]+)*`)

// Fingerprint names a kind of error: errors of one type whose messages differ only in numbers,
// UUIDs and quoted parts have the same one. It is stable for ever, since dead tasks are grouped
// by it; this is the algorithm:
//
//   - in the first 4096 bytes of the message replace, from the left, a part in "…", `…` or '…'
//     (the last not behind a letter, digit or underscore) by two single quotes; and by # a UUID,
//     0x and hex digits, a word of at least eight hex digits with a decimal one among them, and a
//     number, with groups of digits behind . , or :
//   - make one blank of each run of white space, and none at the ends;
//   - the first 8 bytes of SHA-256(type + "\n" + message), as 16 hex digits.
func Fingerprint(errorType, message string) string {
	message = message[:min(len(message), maxFingerprinted)]
	message = varying.ReplaceAllStringFunc(message, func(part string) string {
		switch {
		case strings.ContainsAny(part[:1], "\"`'"):
			return "''"
		case strings.ContainsAny(part, "0123456789-"):
			return "#"
		}
		return part // letters that happen to be hex digits
	})
	message = strings.Join(strings.Fields(message), " ")
	sum := sha256.Sum256([]byte(errorType + "\n" + message))
	return hex.EncodeToString(sum[:8])
}

// ErrorFingerprint returns the fingerprint of a failed or buried event: the one in its data
// (data.error.fingerprint), else that of its [Event.ErrorText]. Data of a foreign shape is no error.
func (e Event) ErrorFingerprint() string {
	var data struct {
		Error struct{ Type, Fingerprint string } `json:"error"`
	}
	if json.Unmarshal(e.Data, &data) == nil && isFingerprint(data.Error.Fingerprint) {
		return data.Error.Fingerprint
	}
	return Fingerprint(data.Error.Type, e.ErrorText())
}

func isFingerprint(s string) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == 8 && strings.ToLower(s) == s
}
