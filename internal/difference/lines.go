package difference

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// line is one line of a printed value.
type line struct {
	depth int
	text  string
	index int // of the element of a slice that begins here, from 1
}

func (l line) String() string {
	s := strings.Repeat("  ", l.depth) + l.text
	if l.index > 0 {
		s += fmt.Sprintf(" // [%d]", l.index-1)
	}
	return s
}

// printer prints a value as lines.
type printer struct {
	lines  []line
	inside map[reference]bool // the references that lead to the value
}

func linesOf(v any) []line {
	p := printer{inside: make(map[reference]bool)}
	p.print(place{named: true}, reflect.ValueOf(v))
	return p.lines
}

// place is where a value is printed.
type place struct {
	depth         int
	before, after string // the text around the value
	index         int    // of the element, from 1
	named         bool   // whether the type of a simple value is printed: the place allows several
}

// add adds the first or the only line of a value.
func (p *printer) add(at place, text string) {
	p.lines = append(p.lines, line{at.depth, at.before + text, at.index})
}

// simple adds a value that takes one line.
func (p *printer) simple(at place, v reflect.Value, text string) {
	if at.named {
		text = v.Type().String() + "(" + text + ")"
	}
	p.add(at, text+at.after)
}

func (p *printer) print(at place, v reflect.Value) {
	if !v.IsValid() {
		p.add(at, "nil"+at.after)
		return
	}
	if isNil(v) {
		p.simple(at, v, "nil")
		return
	}
	if r, ok := referenceOf(v); ok {
		if p.inside[r] {
			p.add(at, "the "+v.Type().String()+" that contains this"+at.after)
			return
		}
		p.inside[r] = true
		defer delete(p.inside, r)
	}
	if text, ok := textOf(v); ok {
		p.simple(at, v, text)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		at.before += "&"
		at.named = true
		p.print(at, v.Elem())
	case reflect.Interface:
		at.named = true
		p.print(at, v.Elem())
	case reflect.Struct:
		p.block(at, v, v.NumField(), p.fields)
	case reflect.Map:
		p.block(at, v, v.Len(), p.entries)
	case reflect.Array, reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			at.named = true
			p.text(at, v, bytesOf(v))
			return
		}
		p.block(at, v, v.Len(), p.elements)
	case reflect.String:
		p.text(at, v, v.String())
	default:
		p.simple(at, v, fmt.Sprint(v)) // numbers, booleans, channels and functions
	}
}

// textOf returns the text of a value whose fields do not show its meaning.
func textOf(v reflect.Value) (string, bool) {
	switch value := v.Interface().(type) {
	case time.Time:
		return value.UTC().Format(time.RFC3339Nano), true // the same for equal times
	case time.Duration:
		return value.String(), true
	case reflect.Type:
		return value.String(), true
	case fmt.Stringer:
		if v.CanInt() || v.CanUint() {
			return fmt.Sprintf("%d, %s", v.Interface(), value), true
		}
		_, hasEqual := equalMethod(v.Type())
		if hasEqual || v.Kind() == reflect.Struct && !hasExportedFields(v.Type()) {
			return value.String(), true // such as netip.Addr
		}
	}
	return "", false
}

func hasExportedFields(t reflect.Type) bool {
	for i := range t.NumField() {
		if t.Field(i).IsExported() {
			return true
		}
	}
	return false
}

// block prints a value with parts, each of them deeper.
func (p *printer) block(at place, v reflect.Value, parts int, print func(depth int, v reflect.Value)) {
	if parts == 0 {
		p.add(at, v.Type().String()+"{}"+at.after)
		return
	}
	p.add(at, v.Type().String()+"{")
	print(at.depth+1, v)
	p.lines = append(p.lines, line{depth: at.depth, text: "}" + at.after})
}

// fields prints the fields that are not zero.
func (p *printer) fields(depth int, v reflect.Value) {
	v = readable(v)
	for i := range v.NumField() {
		if f := field(v, i); !isZero(f) {
			p.print(place{depth: depth, before: v.Type().Field(i).Name + ": ", after: ","}, f)
		}
	}
}

func isZero(v reflect.Value) bool {
	if t, ok := v.Interface().(time.Time); ok {
		return t.IsZero() // in any location
	}
	return v.IsZero()
}

func (p *printer) elements(depth int, v reflect.Value) {
	for i := range v.Len() {
		p.print(place{depth: depth, after: ",", index: i + 1}, v.Index(i))
	}
}

// entries prints a map in the order of its keys.
func (p *printer) entries(depth int, v reflect.Value) {
	type entry struct {
		key   reflect.Value
		text  string
		value reflect.Value
	}
	var entries []entry
	for i := v.MapRange(); i.Next(); {
		text := fmt.Sprintf("%+v", i.Key())
		if i.Key().Kind() == reflect.String {
			text = strconv.Quote(i.Key().String())
		}
		entries = append(entries, entry{i.Key(), text, i.Value()})
	}
	slices.SortFunc(entries, func(a, b entry) int {
		switch {
		case a.key.CanInt():
			return cmp.Compare(a.key.Int(), b.key.Int())
		case a.key.CanUint():
			return cmp.Compare(a.key.Uint(), b.key.Uint())
		}
		return cmp.Compare(a.text, b.text)
	})
	for _, e := range entries {
		p.print(place{depth: depth, before: e.text + ": ", after: ","}, e.value)
	}
}

// bytesOf returns an array or a slice of bytes, as hexadecimal digits unless it is a text.
func bytesOf(v reflect.Value) string {
	b := make([]byte, v.Len())
	for i := range b {
		b[i] = byte(v.Index(i).Uint())
	}
	if !utf8.Valid(b) {
		return fmt.Sprintf("% x", b)
	}
	return string(b)
}

// text prints a text, one line for each of its lines.
func (p *printer) text(at place, v reflect.Value, s string) {
	parts := slices.Collect(strings.Lines(s))
	if len(parts) < 2 {
		p.simple(at, v, strconv.Quote(s))
		return
	}
	p.add(at, v.Type().String()+"(")
	for i, part := range parts {
		end := " +"
		if i == len(parts)-1 {
			end = ")" + at.after
		}
		p.lines = append(p.lines, line{depth: at.depth + 1, text: strconv.Quote(part) + end})
	}
}
