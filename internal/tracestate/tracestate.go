// Package tracestate reads the tracestate of W3C Trace Context (https://www.w3.org/TR/trace-context/).
package tracestate

import (
	"slices"
	"strings"
)

// The limits of W3C Trace Context. A longer tracestate is cut as the recommendation asks.
const (
	MaxBytes = 512

	maxMembers = 32
	maxKey     = 256
	maxValue   = 256
	longMember = 128 // longer members are left out first
)

// Pass returns the part of a W3C tracestate that is passed on: its members in their order, <key>=<value>,
// separated by commas. If they are longer than [MaxBytes], members of more than 128 bytes are left out
// first, the last one first, then others in the same way. It returns "" for a malformed tracestate: a
// member of another form, a key that occurs twice, or more than 32 members.
func Pass(text string) string {
	var members []string
	size := -1 // commas stand between members only
	for member := range strings.SplitSeq(text, ",") {
		member = strings.Trim(member, " \t")
		if member == "" {
			continue // W3C allows it
		}
		key, value, _ := strings.Cut(member, "=")
		twice := slices.ContainsFunc(members, func(m string) bool { return strings.HasPrefix(m, key+"=") })
		if twice || len(members) == maxMembers || !isKey(key) || !isValue(value) {
			return ""
		}
		members = append(members, member)
		size += len(member) + len(",")
	}
	for size > MaxBytes {
		last := len(members) - 1
		for i, m := range members {
			if len(m) > longMember {
				last = i
			}
		}
		size -= len(members[last]) + len(",")
		members = slices.Delete(members, last, last+1)
	}
	return strings.Join(members, ",")
}

func isKey(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (i == 0 || !strings.ContainsRune("_-*/@", rune(c))) {
			return false
		}
	}
	return s != "" && len(s) <= maxKey
}

// isValue reports whether s is a valid value. The caller has split at commas and trimmed the end.
func isValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '=' {
			return false
		}
	}
	return s != "" && len(s) <= maxValue
}
