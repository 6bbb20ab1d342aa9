// Package difference compares values in tests and prints the lines in which they differ.
package difference

import (
	"fmt"
	"reflect"
	"strings"
)

// Of returns "" if a and b are equal, and otherwise their differences: lines of a with a minus, lines of b with a plus,
// and some equal lines around them.
//
// Values are equal as for [reflect.DeepEqual], unexported fields included, except that a method Equal decides if their
// type has one, as [time.Time] does. A nil slice is not equal to an empty one.
func Of(a, b any) string { return compare(a, b, false) }

// OfContents is [Of], except that a nil slice or map is equal to an empty one, at any depth.
func OfContents(a, b any) string { return compare(a, b, true) }

func compare(a, b any, emptyIsNil bool) string {
	c := comparison{emptyIsNil: emptyIsNil, compared: make(map[[2]reference]bool)}
	if c.equal(reflect.ValueOf(a), reflect.ValueOf(b)) {
		return ""
	}
	before, after := linesOf(a), linesOf(b)
	if edits := edits(before, after); len(edits) > 0 {
		return format(before, edits)
	}
	// For example NaN, two functions, or pointers that an Equal method compares.
	var s strings.Builder
	s.WriteString("the values differ, and both are printed as\n")
	for _, l := range before {
		fmt.Fprintf(&s, "  %s\n", l)
	}
	return s.String()
}

// around is the number of equal lines that are printed before and after a difference.
const around = 3

// format prints the edits of some lines. Of the equal lines between them, it prints those next to an edit and those
// that begin the values that contain the edit, so that each line can be found.
func format(lines []line, edits []edit) string {
	isShown := make([]bool, len(lines))
	for _, e := range edits {
		first := max(0, e.from-around)
		for i := first; i < min(len(lines), e.to+around); i++ {
			isShown[i] = true
		}
		if first >= len(lines) {
			continue
		}
		depth := lines[first].depth
		for i := first - 1; i >= 0 && depth > 0; i-- {
			if lines[i].depth < depth {
				depth, isShown[i] = lines[i].depth, true
			}
		}
	}
	var s strings.Builder
	hidden := 0
	end := func() {
		if hidden > 0 {
			fmt.Fprintf(&s, "  … %d equal lines\n", hidden)
			hidden = 0
		}
	}
	equal := func(from, to int) {
		for i := from; i < to; i++ {
			if !isShown[i] {
				hidden++
				continue
			}
			end()
			fmt.Fprintf(&s, "  %s\n", lines[i])
		}
	}
	at := 0
	for _, e := range edits {
		equal(at, e.from)
		end()
		for _, l := range lines[e.from:e.to] {
			fmt.Fprintf(&s, "- %s\n", l)
		}
		for _, l := range e.with {
			fmt.Fprintf(&s, "+ %s\n", l)
		}
		at = e.to
	}
	equal(at, len(lines))
	end()
	return s.String()
}
