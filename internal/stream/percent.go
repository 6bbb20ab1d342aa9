package stream

import "strings"

const hexDigits = "0123456789ABCDEF"

// mustEscape reports whether CloudEvents requires c percent-encoded in a header.
func mustEscape(c byte) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == '%' }

// isPlain reports whether s is the same in percent-encoding.
func isPlain(s string) bool {
	for i := range len(s) {
		if mustEscape(s[i]) {
			return false
		}
	}
	return true
}

// escape returns s in percent-encoding.
func escape(s string) string {
	if isPlain(s) {
		return s
	}
	return string(appendEscaped(nil, s))
}

// appendEscaped appends s in percent-encoding.
func appendEscaped(b []byte, s string) []byte {
	if isPlain(s) {
		return append(b, s...)
	}
	for i := range len(s) {
		if c := s[i]; mustEscape(c) {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		} else {
			b = append(b, c)
		}
	}
	return b
}

// unescape decodes percent-encoding, in either case of the digits. It accepts characters that should have
// been encoded, as CloudEvents requires of receivers.
func unescape(s string) (string, bool) {
	i := strings.IndexByte(s, '%')
	if i < 0 {
		return s, true
	}
	b := make([]byte, 0, len(s))
	for ; i >= 0; i = strings.IndexByte(s, '%') {
		if len(s) < i+3 {
			return "", false
		}
		hi, ok1 := unhex(s[i+1])
		lo, ok2 := unhex(s[i+2])
		if !ok1 || !ok2 {
			return "", false
		}
		b = append(append(b, s[:i]...), hi<<4|lo)
		s = s[i+3:]
	}
	return string(append(b, s...)), true
}

func unhex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}
