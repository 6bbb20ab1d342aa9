package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/taskledger/taskledger/internal/printable"
)

// The maximum lengths of the parts of a difference, in characters.
const (
	maxDifferencePath  = 160
	maxDifferenceValue = 80
)

// absent stands for a value that does not exist.
type absent struct{}

// argsDifference describes the first difference of two JSON texts, such as "args.cents was 500, is 600", in printable
// characters of bounded number. An empty text means no args. It only explains: is_same_json decides whether
// args are the same. It returns "" if it finds no difference, for example in texts with a repeated name.
func argsDifference(was, is json.RawMessage) string {
	path, a, b, differ := firstDifference(decodeNumbers(was), decodeNumbers(is))
	if !differ {
		return ""
	}
	before, after := shortValues(a, b)
	return fmt.Sprintf("%s was %s, is %s", printable.Short("args"+path, maxDifferencePath), before, after)
}

// decodeNumbers decodes a JSON text, and keeps numbers as written.
func decodeNumbers(text json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return absent{}
	}
	return v
}

// firstDifference returns the path of the first difference of two values, and the values there.
func firstDifference(was, is any) (path string, a, b any, differ bool) {
	switch x := was.(type) {
	case map[string]any:
		y, ok := is.(map[string]any)
		if !ok {
			break
		}
		names := slices.Sorted(maps.Keys(x))
		for name := range y {
			if _, ok := x[name]; !ok {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			if path, a, b, differ = firstDifference(valueOf(x, name), valueOf(y, name)); differ {
				return member(name) + path, a, b, true
			}
		}
		return "", nil, nil, false
	case []any:
		y, ok := is.([]any)
		if !ok {
			break
		}
		for i := range max(len(x), len(y)) {
			if path, a, b, differ = firstDifference(elementOf(x, i), elementOf(y, i)); differ {
				return "[" + strconv.Itoa(i) + "]" + path, a, b, true
			}
		}
		return "", nil, nil, false
	case json.Number:
		if y, ok := is.(json.Number); ok {
			return "", was, is, numberValue(string(x)) != numberValue(string(y))
		}
	default: // string, bool, nil, absent
		switch is.(type) {
		case map[string]any, []any:
		default:
			return "", was, is, was != is
		}
	}
	return "", was, is, true
}

// member returns the part of a path that names a member of an object.
func member(name string) string {
	isWord := name != ""
	for _, c := range name {
		isWord = isWord && (c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z')
	}
	if isWord {
		return "." + name
	}
	return "[" + strconv.Quote(name) + "]"
}

// valueOf returns a member of an object, or absent.
func valueOf(object map[string]any, name string) any {
	if v, ok := object[name]; ok {
		return v
	}
	return absent{}
}

// elementOf returns an element of an array, or absent.
func elementOf(array []any, i int) any {
	if i < len(array) {
		return array[i]
	}
	return absent{}
}

// numberValue is taskledger_internal.number_value in Go.
func numberValue(number string) string {
	digits, isNegative := strings.CutPrefix(number, "-")
	exponent := int64(0)
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.ParseInt(digits[i+1:], 10, 64); err != nil {
			return number
		}
		digits = digits[:i]
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	significant := strings.TrimRight(digits, "0")
	if significant == "" {
		return "0"
	}
	if isNegative {
		significant = "-" + significant
		digits = "-" + digits
	}
	return significant + "e" + strconv.FormatInt(exponent-int64(len(fraction))+int64(len(digits)-len(significant)), 10)
}

// shortValues returns the JSON of two values, in printable characters, truncated so that their difference stays
// visible.
func shortValues(was, is any) (before, after string) {
	a, b := jsonOf(was), jsonOf(is)
	before, after = printable.Short(a, maxDifferenceValue), printable.Short(b, maxDifferenceValue)
	if before != after {
		return before, after
	}
	x, y := []rune(a), []rune(b)
	common := 0 // characters before the difference
	for common < min(len(x), len(y)) && x[common] == y[common] {
		common++
	}
	if skipped := common - maxDifferenceValue/4; skipped > 0 {
		a, b = "…"+string(x[skipped:]), "…"+string(y[skipped:])
		before, after = printable.Short(a, maxDifferenceValue), printable.Short(b, maxDifferenceValue)
	}
	return before, after
}

// jsonOf returns the JSON of a value.
func jsonOf(v any) string {
	if v == (any)(absent{}) {
		return "missing"
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // a value that was decoded encodes
	return strings.TrimSuffix(b.String(), "\n")
}
