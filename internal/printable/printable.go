// Package printable makes text from outside the program fit to be shown to people or to be stored, and
// formats numbers for people.
package printable

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns text in one line that shows what is in it: control characters, line ends, escape
// sequences for terminals, and whatever else is not printable, are written as escapes, and so are
// bytes that are no UTF-8.
func Text(s string) string {
	if !strings.ContainsFunc(s, unprintable) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case unprintable(r):
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
		s = s[size:]
	}
	return b.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// Short is [Text], cut to a number of runes.
func Short(s string, most int) string {
	s = Text(s)
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// Storable returns s as PostgreSQL can store it in JSON: valid UTF-8 without NUL. What is longer than maxBytes
// is cut and ends with an ellipsis.
func Storable(s string, maxBytes int) string {
	if len(s) > maxBytes {
		s = s[:maxBytes] + "…"
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}

// Count is a number with thousands set apart.
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
