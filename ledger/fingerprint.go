package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/taskledger/taskledger/internal/strictjson"
)

// maxFingerprintBytes is how many bytes of a message count.
const maxFingerprintBytes = 4 << 10

// variablePart matches the parts that differ between two messages about the same fault.
var variablePart = regexp.MustCompile(statusPart + "|\"[^\"]*\"|`[^`]*`|" + `\B'[^']*'|` +
	`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|` +
	`0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b|[0-9]+(?:[.,:][0-9]+)*`)

// statusPart matches a status, which stays.
const statusPart = `(?i:status|code|http)(?:[ :=]|[Cc]ode|/[0-9.]+)*[1-5][0-9]{2}\b`

var status = regexp.MustCompile(`^(?:` + statusPart + `)$`)

// Fingerprint returns the group to which an error belongs. Errors of one type whose messages differ only in
// numbers, UUIDs and quoted parts share a fingerprint, unless the number is a status such as HTTP 401. The algorithm
// never changes, because stored fingerprints group dead tasks:
//
//   - Take the first 4096 bytes of the message.
//   - From the left, keep a number from 100 to 599 after the word status, code or HTTP, in any case. Between them may
//     be blanks, colons, equals signs, the word code, or / with a version.
//   - In the same pass replace a part in "…", `…` or '…' by two single quotes. A ' after a letter, a digit or
//     an underscore does not begin such a part.
//   - In the same pass replace by # a UUID, 0x with hex digits, a word of at least eight hex digits with at least
//     one decimal digit, and a number with its groups of digits after . , or :
//   - Replace each run of white space by one blank, and remove it at both ends.
//   - The fingerprint is the first 8 bytes of SHA-256(type + "\n" + message), as 16 hex digits.
func Fingerprint(errorType, message string) string {
	message = message[:min(len(message), maxFingerprintBytes)]
	message = variablePart.ReplaceAllStringFunc(message, func(part string) string {
		switch {
		case status.MatchString(part):
			return part
		case strings.ContainsAny(part[:1], "\"`'"):
			return "''"
		case strings.ContainsAny(part, "0123456789-"):
			return "#"
		}
		return part // a word of the letters a to f
	})
	message = strings.Join(strings.Fields(message), " ")
	sum := sha256.Sum256([]byte(errorType + "\n" + message))
	return hex.EncodeToString(sum[:8])
}

// ErrorFingerprint returns the fingerprint of a failed or buried event: data.error.fingerprint if that is
// valid, else the [Fingerprint] of data.error.type and [Event.ErrorText].
func (e Event) ErrorFingerprint() string {
	if known := strictjson.Text(e.Data, "error", "fingerprint"); isFingerprint(known) {
		return known
	}
	return Fingerprint(strictjson.Text(e.Data, "error", "type"), e.ErrorText())
}

func isFingerprint(s string) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == 8 && strings.ToLower(s) == s
}
