package outbox

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A mark has the places of withheld kinds, each once, however many kinds have it.
func TestMarkHasEachPlaceOnce(t *testing.T) {
	t.Parallel()
	made := mark{Generation: 1, Withheld: new(withheld)}
	for i := range 1000 {
		at := beginning()
		at.After = ledger.Position(i % 2)
		made.Withheld.set(ledger.Kind(fmt.Sprintf("kind.k%d", i)), ledger.AllShards, at)
	}
	later := beginning()
	later.After = 1
	made.Withheld.set("kind.k0", ledger.ShardRange(60, 63), later)
	text := made.encode()
	if n := bytes.Count(text, []byte("seen")); n != 2 {
		t.Errorf("%d places are in the mark of 1000 kinds with 2 places", n)
	}
	read, _, err := parseMark(text)
	if err != nil {
		t.Fatal(err)
	}
	if !read.Withheld.equals(made.Withheld) {
		t.Error("the places differ after they were encoded and parsed")
	}
}

// A page beside thousands of withheld kinds does not encode them again, until one of them changes.
func TestMarkKeepsWithheldKindsEncoded(t *testing.T) {
	made := manyWithheld(12_000)
	changed := len(made.encode())
	if n := testing.AllocsPerRun(10, func() { made.encode() }); n > 10 {
		t.Errorf("%.0f allocations for an unchanged mark of 12,000 kinds", n)
	}
	made.Withheld.release("kind.k0", ledger.AllShards)
	if n := len(made.encode()); n >= changed {
		t.Errorf("%d bytes with a kind less, %d before", n, changed)
	}
}

// BenchmarkMarkOfManyKinds measures the mark of a page beside 12,000 withheld kinds.
func BenchmarkMarkOfManyKinds(b *testing.B) {
	made := manyWithheld(12_000)
	b.ReportAllocs()
	for b.Loop() {
		made.encode()
	}
}

func manyWithheld(kinds int) mark {
	made := mark{Generation: 1, Withheld: new(withheld)}
	for i := range kinds {
		made.Withheld.set(ledger.Kind(fmt.Sprintf("kind.k%d", i)), ledger.AllShards, beginning())
	}
	return made
}

// The view taskledger.relay_mark reads the marks that this package writes. The reconciler, which reads the view,
// would otherwise stop silently.
func TestViewOfTheMark(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	created := time.Date(2026, 11, 22, 1, 2, 3, 456_000_000, time.UTC)
	made := firstMark(&jetstream.StreamInfo{Created: created})
	made.Generation, made.Seq = 7, 42
	repairing := made
	repairing.Owed = &owed{To: beginning()}
	for _, test := range []struct {
		name        string
		mark        *mark
		isRepairing bool
	}{
		{name: "no page published"},
		{name: "published", mark: &made},
		{name: "repairing", mark: &repairing, isRepairing: true},
	} {
		var text *string
		if test.mark != nil {
			encoded := string(test.mark.encode())
			text = &encoded
		}
		_, err := db.Exec(t.Context(), `
			insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, after_position, origin, mark)
			select $1, coalesce(max(n), 0) + 1, '10:10:', 3, '10', 5, 'here', $2::text::json
			  from taskledger.cursor`, reader, text)
		if err != nil {
			t.Fatal(err)
		}
		var generation, seq *int64
		var stream *string
		var top int64
		var isRepairing bool
		err = db.QueryRow(t.Context(), `
			select generation, stream_created, stream_seq, top, is_repairing
			  from taskledger.relay_mark order by n desc limit 1`).Scan(&generation, &stream, &seq, &top, &isRepairing)
		if err != nil {
			t.Fatal(err)
		}
		if top != 5 || isRepairing != test.isRepairing {
			t.Errorf("%s: top %d, is_repairing %v", test.name, top, isRepairing)
		}
		if test.mark == nil {
			if generation != nil || stream != nil || seq != nil {
				t.Errorf("%s: the fields are not null", test.name)
			}
			continue
		}
		if generation == nil || *generation != 7 || seq == nil || *seq != 42 ||
			stream == nil || *stream != created.Format(time.RFC3339Nano) {
			t.Errorf("%s: generation %v, stream_created %v, stream_seq %v", test.name, generation, stream, seq)
		}
	}
}
