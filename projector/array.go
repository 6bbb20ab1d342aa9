package projector

import (
	"strconv"
	"strings"
	"time"
)

// array builds an array literal: statements take arrays as plain text and cast them, so that
// they work in every query mode of pgx and through poolers.
type array struct {
	text  strings.Builder
	nulls int // at the end, not written yet
}

// next begins another element.
func (a *array) next() {
	separator := byte(',')
	if a.text.Len() == 0 {
		separator = '{'
	}
	for ; a.nulls > 0; a.nulls-- {
		a.text.WriteByte(separator)
		a.text.WriteString("NULL")
		separator = ','
	}
	a.text.WriteByte(separator)
}

func (a *array) add(s string) {
	a.next()
	a.text.WriteByte('"')
	for i := strings.IndexAny(s, `\"`); i >= 0; i = strings.IndexAny(s, `\"`) {
		a.text.WriteString(s[:i])
		a.text.WriteByte('\\')
		a.text.WriteByte(s[i])
		s = s[i+1:]
	}
	a.text.WriteString(s)
	a.text.WriteByte('"')
}

// addOptional adds NULL for the empty string. The NULLs at the end are left out: unnest puts them
// where one of its arrays is shorter than the others.
func (a *array) addOptional(s string) {
	if s == "" {
		a.nulls++
		return
	}
	a.add(s)
}

func (a *array) addInt(n int64) {
	a.next()
	var digits [20]byte
	a.text.Write(strconv.AppendInt(digits[:0], n, 10))
}

// addOptionalTime adds a time to the microsecond, as the database keeps it, or NULL for the zero
// time.
func (a *array) addOptionalTime(t time.Time) {
	if t.IsZero() {
		a.nulls++
		return
	}
	a.add(t.UTC().Format("2006-01-02T15:04:05.999999Z"))
}

func (a *array) empty() bool { return a.text.Len() == 0 }

// String ends the array: nothing may be added behind it.
func (a *array) String() string {
	if a.empty() {
		return "{}"
	}
	a.text.WriteByte('}')
	return a.text.String()
}
