// Package strictjson decodes JSON that is signed, trusted or decided on. It refuses a text that another program could
// read differently, so that a check of the decoded value is a check of the text.
//
// Package encoding/json takes the member Kind for the field kind, the last of two members with one name, and half of a
// surrogate pair for U+FFFD; it ignores unknown members.
package strictjson

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Error is a member or a string that programs could read differently.
type Error struct {
	Field string // the path of the value, such as tasks[2].after.keys; "" for the whole text
	Rule  string
}

func (e *Error) Error() string {
	if e.Field == "" {
		return e.Rule
	}
	return e.Field + ": " + e.Rule
}

// Unmarshal decodes one JSON value into v as [json.Unmarshal] does. It returns an [*Error] for an invalid string, a
// repeated name, or a member whose name does not match a field exactly. It does not check values for a
// [json.RawMessage] or an interface; a [json.Unmarshaler] checks its own.
func Unmarshal(text []byte, v any) error {
	if !utf8.Valid(text) {
		return &Error{Rule: "must be valid UTF-8"}
	}
	c := checker{Decoder: json.NewDecoder(bytes.NewReader(text))}
	if err := c.check(reflect.TypeOf(v)); err != nil && !errors.Is(err, errStop) {
		return err
	}
	return json.Unmarshal(text, v)
}

// Member returns the value of a member of nested objects, or nil if it does not exist. It compares names exactly. Of
// two members with one name it returns the last, as PostgreSQL does.
func Member(text []byte, path ...string) json.RawMessage {
	for _, name := range path {
		var members map[string]json.RawMessage
		if json.Unmarshal(text, &members) != nil {
			return nil
		}
		text = members[name]
	}
	return text
}

// Text returns the value of [Member] that is a string, "" if it does not exist or is another value.
func Text(text []byte, path ...string) (value string) {
	if json.Unmarshal(Member(text, path...), &value) != nil {
		return ""
	}
	return value
}

// checker reads a text before it is decoded. It keeps no value, since a small body may have millions after
// decompression.
type checker struct {
	*json.Decoder
	raw json.RawMessage // which uses its memory again
}

// errStop ends the check of a text that the decoder refuses: invalid JSON, or a value of another type.
var errStop = errors.New("the decoder refuses the text")

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// check reads the next value, which will be decoded into one of type t. It returns errStop or an [*Error].
func (c *checker) check(t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	isObject := t.Kind() == reflect.Struct || t.Kind() == reflect.Map
	isArray := t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 || t.Kind() == reflect.Array
	if reflect.PointerTo(t).Implements(unmarshaler) || !isObject && !isArray {
		return c.checkOther(t)
	}
	token, err := c.Token()
	switch {
	case err != nil:
		return errStop
	case isObject && token == json.Delim('{'):
		return c.checkObject(t)
	case isArray && token == json.Delim('['):
		return c.checkArray(t.Elem())
	case token == nil: // null
		return nil
	}
	return errStop
}

// checkOther reads a value that is neither object nor array, or that is left to its own reader.
func (c *checker) checkOther(t reflect.Type) error {
	if c.Decode(&c.raw) != nil {
		return errStop
	}
	if t.Kind() == reflect.String && hasLoneSurrogate(c.raw) {
		return &Error{Rule: "must not have half of a surrogate pair"}
	}
	return nil
}

// checkObject reads the rest of an object.
func (c *checker) checkObject(t reflect.Type) error {
	isKnown := newNames(t)
	for c.More() {
		token, err := c.Token()
		if err != nil {
			return errStop
		}
		name, _ := token.(string)
		member, err := isKnown(name)
		if err != nil && c.Decode(&c.raw) != nil {
			return errStop
		}
		if err == nil {
			err = c.check(member)
		}
		if err != nil {
			return below(name, err)
		}
	}
	return c.end()
}

// checkArray reads the rest of an array, whose elements will be of type t.
func (c *checker) checkArray(t reflect.Type) error {
	for i := 0; c.More(); i++ {
		if err := c.check(t); err != nil {
			return below("["+strconv.Itoa(i)+"]", err)
		}
	}
	return c.end()
}

// end reads the end of an object or an array.
func (c *checker) end() error {
	if _, err := c.Token(); err != nil {
		return errStop
	}
	return nil
}

// newNames returns a function that returns the type of an object's next member, or the [*Error] of its name. The object
// will be decoded into a struct or a map of type t.
func newNames(t reflect.Type) func(name string) (reflect.Type, error) {
	twice := &Error{Rule: "must be given once"}
	if t.Kind() == reflect.Map {
		seen := make(map[string]bool)
		return func(name string) (reflect.Type, error) {
			if seen[name] {
				return nil, twice
			}
			seen[name] = true
			return t.Elem(), nil
		}
	}
	fields := fieldsOf(t)
	seen := make([]bool, len(fields))
	return func(name string) (reflect.Type, error) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			return nil, &Error{Rule: "is not a member; there are " + joined(fields)}
		}
		if seen[i] {
			return nil, twice
		}
		seen[i] = true
		return fields[i].t, nil
	}
}

// below returns a value's error as the error of a value within the member or the element outer.
func below(outer string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	if e.Field != "" && e.Field[0] != '[' {
		outer += "."
	}
	return &Error{Field: outer + e.Field, Rule: e.Rule}
}

// field is a field of a struct as the decoder finds it.
type field struct {
	name string
	t    reflect.Type
}

var knownFields sync.Map // of reflect.Type: []field

func fieldsOf(t reflect.Type) (fields []field) {
	if known, ok := knownFields.Load(t); ok {
		return known.([]field)
	}
	for _, f := range reflect.VisibleFields(t) {
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		isEmbedded := f.Anonymous && name == "" // its fields are visible themselves
		if f.IsExported() && !isEmbedded && tag != "-" {
			fields = append(fields, field{name: cmp.Or(name, f.Name), t: f.Type})
		}
	}
	knownFields.Store(t, fields)
	return fields
}

func joined(fields []field) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

// hasLoneSurrogate reports whether a JSON string contains an escape for half of a surrogate pair without the other
// half.
func hasLoneSurrogate(text []byte) bool {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		first, isUnicode := escaped(text[i:])
		if i++; !isUnicode || !utf16.IsSurrogate(first) {
			continue // the escaped byte begins no escape
		}
		second, _ := escaped(text[min(i+5, len(text)):])
		if utf16.DecodeRune(first, second) == unicode.ReplacementChar {
			return true
		}
		i += 10
	}
	return false
}

// escaped returns the code that a text begins with as \uXXXX.
func escaped(text []byte) (code rune, ok bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}

// FieldName returns the name of a field in the text, without the names of embedded structs.
func FieldName(mismatch *json.UnmarshalTypeError) string {
	words := strings.Split(mismatch.Field, ".")
	for len(words) > 1 && words[0] != strings.ToLower(words[0]) {
		words = words[1:]
	}
	return strings.Join(words, ".")
}
