package seal_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/seal"
)

func isNewline(r rune) bool { return r == '\n' }

// A file of checkpoints is parsed into checkpoints with the same text.
func FuzzParseCheckpoints(f *testing.F) {
	c := seal.Checkpoint{Origin: "taskledger/6f1ed002-ab5e-4e4c-9a4b-5d3f6b8f3c11", Size: 1024,
		Root: tlog.RecordHash(nil)}.String()
	for _, text := range []string{
		c, c + "\n" + c, "\n\n" + c, strings.TrimSuffix(c, "\n"), strings.ReplaceAll(c, "\n", "\r\n"), c + c, "",
		strings.Replace(c, "1024", "-1", 1), strings.Replace(c, "1024", "01024", 1), c[:len(c)-3],
		strings.Replace(c, "1024", "99999999999999999999", 1), "go.sum database tree\n" + c, c + "— signature",
		c + "\n— x AAAA\n— y AAAA\n\n" + c, c + "\n\n— x AAAA\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := seal.ParseCheckpoints(text)
		if err != nil {
			return
		}
		var lines []string
		for _, c := range all {
			lines = append(lines, c.String())
		}
		kept := strings.FieldsFunc(strings.ReplaceAll(text, "\r\n", "\n"), isNewline)
		kept = slices.DeleteFunc(kept, func(line string) bool { return strings.HasPrefix(line, "— ") })
		parsed := strings.FieldsFunc(strings.Join(lines, ""), isNewline)
		if diff := difference.Of(kept, parsed); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	})
}

// A proof from outside is refused without a panic, unless it is the proof that was made.
func FuzzProof(f *testing.F) {
	right, kept := proved()
	text, err := json.Marshal(right)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Add(`{}`)
	f.Add(`{"checkpoint":{"size":-1},"leaf":-1}`)
	f.Add(strings.Replace(string(text), `"size":2`, `"size":9223372036854775807`, 1))
	f.Fuzz(func(t *testing.T, text string) {
		p, err := seal.ParseProof([]byte(text))
		if err != nil || p.Check(kept) != nil {
			return
		}
		if diff := difference.Of(right.Event, p.Event); diff != "" || p.Leaf != 1 {
			t.Errorf("another event is proved by %s: %s", text, diff)
		}
		var read struct { // by a program that looks for exact names
			Event map[string]any
		}
		if json.Unmarshal([]byte(text), &read) != nil || read.Event["data"] != *right.Event.Data ||
			read.Event["actor"] != *right.Event.Actor {
			t.Errorf("another program reads other data in %s: %v", text, read.Event)
		}
		_ = p.Check(p.Checkpoint)
	})
}
