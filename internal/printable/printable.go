// Package printable formats untrusted text for display or for storage, and numbers and durations for display.
package printable

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Text returns s as one line of printable characters. It escapes all other characters, such as line ends
// and terminal sequences, and bytes that are not UTF-8.
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

// Short returns [Text] of s, truncated to limit runes. A truncated text ends with an ellipsis.
func Short(s string, limit int) string {
	s = Text(s)
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit-1]) + "…"
}

// Storable returns s as PostgreSQL can store it in JSON: valid UTF-8 without NUL. A text longer than
// maxBytes is truncated and ends with an ellipsis.
func Storable(s string, maxBytes int) string {
	if len(s) > maxBytes {
		s = s[:maxBytes] + "…"
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}

// Count returns n with commas between groups of three digits.
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// maxCounted is the number at which counting stops where there may be any number of rows.
const maxCounted = 10_000

// Counted is [Count] of a number that is counted up to 10,000: there may be more.
func Counted(n int64) string {
	if n >= maxCounted {
		return Count(maxCounted) + "+"
	}
	return Count(n)
}

// Names returns [Text] of the first names, at most limit of them, and the number of the others.
func Names(names []string, limit int) string {
	shown := make([]string, min(len(names), limit))
	for i := range shown {
		if shown[i] = Text(names[i]); shown[i] == "" {
			shown[i] = `""`
		}
	}
	text := strings.Join(shown, ", ")
	if more := len(names) - len(shown); more > 0 {
		text += " and " + Count(int64(more)) + " more"
	}
	return text
}

// Age returns a duration in its largest unit, rounded down. A negative one is "0ms".
func Age(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", max(0, d.Milliseconds()))
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Duration returns a duration in full, without the units that are zero at its end: 1h for an hour.
func Duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
