// Package pgarray builds PostgreSQL array literals. Statements take arrays as text and cast them, so
// that they work in every query mode of pgx, through database/sql and behind poolers.
package pgarray

import (
	"strconv"
	"strings"
	"time"
)

// Builder builds one literal. The zero value is an empty array. It must not be copied after first use.
type Builder struct {
	// Empties makes AddOptional write an empty text between others, in place of NULL: under the setting array_nulls =
	// off, NULL is the text "NULL".
	Empties bool

	text    strings.Builder
	nulls   int  // at the end, not written yet
	isInts  bool // nulls are zeros
	isEnded bool // by String
}

// indexSpecial returns the index of the first byte that is written in another form, or -1. Such bytes are escaped;
// U+FFFD replaces NUL, which PostgreSQL cannot store.
func indexSpecial[S string | []byte](s S) int {
	for i := range len(s) {
		if c := s[i]; c == '"' || c == '\\' || c == 0 {
			return i
		}
	}
	return -1
}

// form returns the form of a special byte.
func form(c byte) string {
	switch c {
	case 0:
		return "\uFFFD"
	case '"':
		return `\"`
	}
	return `\\`
}

// Grow reserves room for n elements with the given total number of bytes.
func (b *Builder) Grow(n, bytes int) { b.text.Grow(bytes + 4*n + 2) }

// next begins another element.
func (b *Builder) next() {
	separator := byte(',')
	if b.text.Len() == 0 {
		separator = '{'
	}
	for ; b.nulls > 0; b.nulls-- {
		b.text.WriteByte(separator)
		switch {
		case b.isInts:
			b.text.WriteByte('0')
		case b.Empties:
			b.text.WriteString(`""`)
		default:
			b.text.WriteString("NULL")
		}
		separator = ','
	}
	b.text.WriteByte(separator)
}

// Add adds a text.
func (b *Builder) Add(s string) {
	b.next()
	b.text.WriteByte('"')
	for i := indexSpecial(s); i >= 0; i = indexSpecial(s) {
		b.text.WriteString(s[:i])
		b.text.WriteString(form(s[i]))
		s = s[i+1:]
	}
	b.text.WriteString(s)
	b.text.WriteByte('"')
}

// AddInt adds a number.
func (b *Builder) AddInt(n int64) {
	b.next()
	var digits [20]byte
	b.text.Write(strconv.AppendInt(digits[:0], n, 10))
}

// AddOptionalInt adds a number. Zeros at the end of the array are left out, as [Builder.AddOptional] leaves out NULLs,
// so the statement must read NULL as 0. Do not mix it with other optional elements.
func (b *Builder) AddOptionalInt(n int64) {
	if b.isInts = true; n == 0 {
		b.nulls++
		return
	}
	b.AddInt(n)
}

// AddOptional adds a text, or NULL if it is empty. NULLs at the end of the array are left out: unnest
// supplies them where one of its arrays is shorter than the others.
func (b *Builder) AddOptional(s string) {
	if s == "" {
		b.nulls++
		return
	}
	b.Add(s)
}

// AddOptionalBytes is [Builder.AddOptional] without a copy.
func (b *Builder) AddOptionalBytes(s []byte) {
	if len(s) == 0 {
		b.nulls++
		return
	}
	b.next()
	b.text.WriteByte('"')
	for i := indexSpecial(s); i >= 0; i = indexSpecial(s) {
		b.text.Write(s[:i])
		b.text.WriteString(form(s[i]))
		s = s[i+1:]
	}
	b.text.Write(s)
	b.text.WriteByte('"')
}

// AddOptionalTime adds a time to the microsecond, as PostgreSQL keeps it, or NULL for the zero time.
func (b *Builder) AddOptionalTime(t time.Time) {
	if t.IsZero() {
		b.nulls++
		return
	}
	b.Add(t.UTC().Format("2006-01-02T15:04:05.999999Z"))
}

// IsEmpty reports whether every element is NULL, or a 0 of AddOptionalInt.
func (b *Builder) IsEmpty() bool { return b.text.Len() == 0 }

// String ends the array and returns it. Add no element afterwards.
func (b *Builder) String() string {
	if b.IsEmpty() {
		return "{}"
	}
	if !b.isEnded {
		b.isEnded = true
		b.text.WriteByte('}')
	}
	return b.text.String()
}

// Of returns the literal of some texts.
func Of[S ~string](elements ...S) string {
	var b Builder
	for _, s := range elements {
		b.Add(string(s))
	}
	return b.String()
}

// OfInts returns the literal of some numbers.
func OfInts[N ~int | ~int32 | ~int64 | ~uint64](numbers ...N) string {
	var b Builder
	for _, n := range numbers {
		b.AddInt(int64(n))
	}
	return b.String()
}
