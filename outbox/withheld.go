package outbox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

// withheld has the kinds whose work messages are published up to a place only. The shards of a kind have different
// places if some have workers and others do not: a shard is in at most one part, and the first part is the oldest.
// A nil *withheld has no kinds.
type withheld struct {
	kinds map[ledger.Kind][]part
	text  json.RawMessage // its JSON, until a kind changes: each page has a mark, and there may be thousands of kinds
}

// part is the withheld messages of a kind in some shards.
type part struct {
	Shards ledger.ShardSet
	At     feed.Place // messages up to here are published
}

// at returns the place up to which the messages of a kind in a shard are published. It returns false if all are.
func (w *withheld) at(kind ledger.Kind, shard ledger.Shard) (feed.Place, bool) {
	for _, p := range w.all()[kind] {
		if p.Shards.Has(shard) {
			return p.At, true
		}
	}
	return feed.Place{}, false
}

// all returns the kinds with their parts, in no order. They are not to be changed.
func (w *withheld) all() map[ledger.Kind][]part {
	if w == nil {
		return nil
	}
	return w.kinds
}

// IsZero reports whether there are no kinds.
func (w *withheld) IsZero() bool { return len(w.all()) == 0 }

// shards returns the shards of a kind that have withheld messages.
func (w *withheld) shards(kind ledger.Kind) (all ledger.ShardSet) {
	for _, p := range w.all()[kind] {
		all |= p.Shards
	}
	return all
}

// set sets the place of a kind in some shards. Parts with the same place become one.
func (w *withheld) set(kind ledger.Kind, shards ledger.ShardSet, at feed.Place) {
	w.release(kind, shards)
	parts := w.kinds[kind]
	i := slices.IndexFunc(parts, func(p part) bool { return p.At == at })
	if i >= 0 {
		parts[i].Shards |= shards
		return
	}
	parts = append(parts, part{Shards: shards, At: at})
	slices.SortStableFunc(parts, func(a, b part) int { return compare(a.At, b.At) })
	if w.kinds == nil {
		w.kinds = make(map[ledger.Kind][]part)
	}
	w.kinds[kind] = parts
}

// release removes some shards of a kind.
func (w *withheld) release(kind ledger.Kind, shards ledger.ShardSet) {
	var left []part
	w.text = nil
	for _, p := range w.kinds[kind] {
		if p.Shards &^= shards; p.Shards != 0 {
			left = append(left, p)
		}
	}
	if len(left) == 0 {
		delete(w.kinds, kind)
		return
	}
	w.kinds[kind] = left
}

// split gives some shards of a kind, all of one part, a part of their own with the same place.
func (w *withheld) split(kind ledger.Kind, shards ledger.ShardSet) {
	for i, p := range w.kinds[kind] {
		if p.Shards&shards != 0 && p.Shards != shards {
			w.text = nil
			w.kinds[kind][i].Shards = p.Shards &^ shards
			w.kinds[kind] = slices.Insert(w.kinds[kind], i, part{Shards: shards, At: p.At})
			return
		}
	}
}

// equals reports whether two sets have the same parts.
func (w *withheld) equals(other *withheld) bool {
	return maps.EqualFunc(w.all(), other.all(), slices.Equal)
}

// clone returns a copy.
func (w *withheld) clone() *withheld {
	c := &withheld{kinds: make(map[ledger.Kind][]part, len(w.all()))}
	for kind, parts := range w.all() {
		c.kinds[kind] = slices.Clone(parts)
	}
	return c
}

// compare compares two places by when a reader came to them.
func compare(a, b feed.Place) int {
	return cmp.Or(cmp.Compare(a.Seen.Top, b.Seen.Top), cmp.Compare(a.Until.Top, b.Until.Top),
		cmp.Compare(a.After, b.After))
}

// withheldJSON is the JSON of withheld kinds. Each place is written once, because thousands of kinds may have the same:
// {"kinds": {"coupon.send": 0, "mail.send": 0}, "places": [{…}]}.
type withheldJSON struct {
	Kinds  map[ledger.Kind]int `json:"kinds"` // indexes in Places, of the oldest place of each kind
	Places []feed.Place        `json:"places"`
	// Parts has the parts, oldest first, of kinds that have not one place for all shards.
	Parts map[ledger.Kind][]partJSON `json:"parts,omitempty"`
}

type partJSON struct {
	Mask  int64 `json:"mask"`  // of the shards: bit n for shard n
	Place int   `json:"place"` // index in Places
}

// MarshalJSON implements json.Marshaler.
func (w *withheld) MarshalJSON() ([]byte, error) {
	if w.text != nil {
		return w.text, nil
	}
	text := withheldJSON{Kinds: make(map[ledger.Kind]int, len(w.all()))}
	indexes := make(map[feed.Place]int)
	index := func(at feed.Place) int {
		i, ok := indexes[at]
		if !ok {
			i = len(text.Places)
			indexes[at], text.Places = i, append(text.Places, at)
		}
		return i
	}
	for kind, parts := range w.all() {
		text.Kinds[kind] = index(parts[0].At)
		if parts[0].Shards == ledger.AllShards {
			continue
		}
		if text.Parts == nil {
			text.Parts = make(map[ledger.Kind][]partJSON)
		}
		for _, p := range parts {
			text.Parts[kind] = append(text.Parts[kind], partJSON{Mask: int64(p.Shards), Place: index(p.At)})
		}
	}
	var err error
	w.text, err = json.Marshal(text)
	return w.text, err
}

// UnmarshalJSON implements json.Unmarshaler.
func (w *withheld) UnmarshalJSON(data []byte) error {
	var text withheldJSON
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	*w = withheld{kinds: make(map[ledger.Kind][]part, len(text.Kinds))}
	for kind, i := range text.Kinds {
		parts := text.Parts[kind]
		if parts == nil {
			parts = []partJSON{{Mask: -1, Place: i}}
		}
		for _, p := range parts {
			if p.Place < 0 || p.Place >= len(text.Places) {
				return fmt.Errorf("kind %s has place %d of %d", kind, p.Place, len(text.Places))
			}
			at := text.Places[p.Place]
			w.kinds[kind] = append(w.kinds[kind], part{Shards: ledger.ShardSet(p.Mask), At: at})
		}
	}
	return nil
}
