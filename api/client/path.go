package client

import (
	"strings"

	"github.com/taskledger/taskledger/ledger"
)

// Path returns the path of a task in the API. A biz_id may contain any character that [ledger.BizID] allows. All bytes
// but letters, digits, "-", "_", "~" and the dots within a word are percent-encoded: the slash is %2F, the words "."
// and ".." are %2E and %2E%2E, and the colon, which begins the name of a change, is %3A.
func Path(k ledger.Key) string {
	return "/v1/tasks/" + escape(string(k.Kind)) + "/" + escape(string(k.BizID))
}

// escape returns one segment of a path.
func escape(text string) string {
	var b strings.Builder
	dots := strings.Trim(text, ".") == ""
	for _, c := range []byte(text) {
		isPlain := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			strings.IndexByte("-_~", c) >= 0 || c == '.' && !dots
		if isPlain {
			b.WriteByte(c)
			continue
		}
		const digits = "0123456789ABCDEF"
		b.Write([]byte{'%', digits[c>>4], digits[c&15]})
	}
	return b.String()
}
