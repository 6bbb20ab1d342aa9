package difference

import (
	"slices"
	"testing"
	"testing/quick"
)

// The edits of a text make the other text of it, and only remove lines if the other text is a part of the first.
func TestEdits(t *testing.T) {
	t.Parallel()
	lines := func(text []byte) (all []line) {
		for _, b := range text {
			all = append(all, line{text: string('a' + rune(b%3))})
		}
		return all
	}
	apply := func(from, to []line) (have []line, removed, added int) {
		at := 0
		for _, e := range edits(from, to) {
			have = append(append(have, from[at:e.from]...), e.with...)
			removed, added, at = removed+e.to-e.from, added+len(e.with), e.to
		}
		return append(have, from[at:]...), removed, added
	}
	isRight := func(a, b []byte) bool {
		from, to := lines(a), lines(b)
		have, _, _ := apply(from, to)
		part, removed, added := apply(append(slices.Clone(from), to...), to)
		return slices.Equal(have, to) && slices.Equal(part, to) && removed == len(from) && added == 0
	}
	if err := quick.Check(isRight, &quick.Config{MaxCount: 1000}); err != nil {
		t.Error(err)
	}
	if found := edits(lines([]byte("abcabba")), lines([]byte("cbabac"))); len(found) != 4 { // the example of Myers
		t.Errorf("%+v", found)
	}
}

// Texts with very many differences are replaced at once.
func TestTooManyEdits(t *testing.T) {
	t.Parallel()
	a, b := make([]line, mostEdits+1), make([]line, mostEdits+1)
	for i := range a {
		a[i], b[i] = line{text: "a"}, line{text: "b"}
	}
	a[0], b[0] = line{text: "same"}, line{text: "same"}
	found := edits(a, b)
	if len(found) != 1 || found[0].from != 1 || found[0].to != len(a) || len(found[0].with) != mostEdits {
		t.Errorf("%d edits, the first from %d to %d", len(found), found[0].from, found[0].to)
	}
}
