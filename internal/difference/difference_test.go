package difference_test

import (
	"errors"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
)

type state string

type task struct {
	Kind    string
	State   state
	Version int
	At      time.Time
	Delay   time.Duration
	Tags    []string
	Meta    map[string]any
	Args    []byte
	Next    *task
	Error   error
	secret  int
}

// hash is equal to each hash of the same length.
type hash struct{ text string }

func (h hash) Equal(other hash) bool { return len(h.text) == len(other.text) }

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestOf(t *testing.T) {
	t.Parallel()
	elsewhere := time.FixedZone("elsewhere", 3600)
	loop := &task{Kind: "k"}
	loop.Next = loop
	longer := &task{Kind: "k", Next: &task{Kind: "l"}}
	longer.Next.Next = longer
	list := []any{1, nil}
	list[1] = list
	numbers := []int{1, 2, 3}
	for name, test := range map[string]struct {
		a, b any
		want string // "" for equal values
	}{
		"nothing":                {a: nil, b: nil},
		"times":                  {a: task{At: noon}, b: task{At: noon.In(elsewhere)}},
		"zero times":             {a: task{At: time.Time{}}, b: task{At: time.Time{}.In(elsewhere)}},
		"addresses":              {a: netip.MustParseAddr("::1"), b: netip.MustParseAddr("::1")},
		"maps":                   {a: map[string]int{"a": 1, "b": 2}, b: map[string]int{"b": 2, "a": 1}},
		"errors":                 {a: errors.New("a"), b: errors.New("a")},
		"cycles":                 {a: loop, b: &task{Kind: "k", Next: loop}},
		"lists in themselves":    {a: list, b: []any{1, list}},
		"Equal of a part":        {a: []hash{{"ab"}}, b: []hash{{"cd"}}},
		"Equal of a hidden part": {a: struct{ h hash }{hash{"ab"}}, b: struct{ h hash }{hash{"cd"}}},
		"Equal in an interface":  {a: []any{hash{"ab"}}, b: []any{hash{"cd"}}},

		"not Equal": {
			a: []hash{{"ab"}}, b: []hash{{"c"}},
			want: "  []hash{|    hash{ // [0]|-     text: \"ab\",|+     text: \"c\",|    },|  }",
		},
		"parts of a list": {
			a: [][]int{numbers[:1], numbers[:2]}, b: [][]int{{1}, {1, 3}},
			want: "  [][]int{|  … 2 equal lines|    },|    []int{ // [1]|      1, // [0]|-     2, // [1]|" +
				"+     3, // [1]|    },|  }",
		},
		"a list in itself": {a: list[1:], b: []any{2}, want: "  []interface {}{|-   []interface {}{ // [0]|" +
			"-     int(1), // [0]|-     the []interface {} that contains this, // [1]|-   },|+   int(2), // [0]|  }"},
		"a value":       {a: 5, b: 6, want: "- int(5)|+ int(6)"},
		"a type":        {a: 5, b: int64(5), want: "- int(5)|+ int64(5)"},
		"no value":      {a: 5, b: nil, want: "- int(5)|+ nil"},
		"empty and nil": {a: []int{}, b: []int(nil), want: "- []int{}|+ []int(nil)"},
		"an address": {
			a: netip.MustParseAddr("::1"), b: netip.MustParseAddr("::2"),
			want: "- netip.Addr(::1)|+ netip.Addr(::2)",
		},
		"a hidden field": {
			a: task{Kind: "k", secret: 1}, b: task{Kind: "k", secret: 2},
			want: "  task{|    Kind: \"k\",|-   secret: 1,|+   secret: 2,|  }",
		},
		"fields": {
			a: task{Kind: "k", At: noon, Delay: time.Minute}, b: task{Kind: "k", State: "done", At: noon.Add(1)},
			want: "  task{|    Kind: \"k\",|-   At: 2026-01-02T12:00:00Z,|-   Delay: 1m0s,|" +
				"+   State: \"done\",|+   At: 2026-01-02T12:00:00.000000001Z,|  }",
		},
		"a key of a map": {
			a: map[string]any{"b": 1, "a": state("x")}, b: map[string]any{"c": 1, "a": state("x")},
			want: "  map[string]interface {}{|    \"a\": state(\"x\"),|-   \"b\": int(1),|+   \"c\": int(1),|  }",
		},
		"a long text": {
			a: "one\ntwo\n", b: "one\nthree\n",
			want: "  string(|    \"one\\n\" +|-   \"two\\n\")|+   \"three\\n\")",
		},
		"bytes": {
			a: []byte{0xff, 1}, b: []byte(`{"a":1}`),
			want: "- []uint8(\"ff 01\")|+ []uint8(\"{\\\"a\\\":1}\")",
		},
		"cycles that differ": {
			a: loop, b: longer,
			want: "  &task{|    Kind: \"k\",|-   Next: the *task that contains this,|" +
				"+   Next: &task{|+     Kind: \"l\",|+     Next: the *task that contains this,|+   },|  }",
		},
		"not a number": {
			a: math.NaN(), b: math.NaN(),
			want: "the values differ, and both are printed as|  float64(NaN)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := strings.ReplaceAll(difference.Of(test.a, test.b), "difference_test.", "")
			want := test.want
			if want != "" {
				want = strings.ReplaceAll(want, "|", "\n") + "\n"
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// Equal lines far from a difference are left out, except those that begin what contains the difference.
func TestLongValues(t *testing.T) {
	t.Parallel()
	list := func() (tasks []task) {
		for range 100 {
			tasks = append(tasks, task{Kind: "k", Version: 1, Tags: []string{"a", "b", "c", "d", "e"}})
		}
		return tasks
	}
	a, b := list(), list()
	b[50].Tags[3] = "x"
	const want = `  []task{
  … 550 equal lines
    task{ // [50]
  … 2 equal lines
      Tags: []string{
        "a", // [0]
        "b", // [1]
        "c", // [2]
-       "d", // [3]
+       "x", // [3]
        "e", // [4]
      },
    },
  … 540 equal lines
`
	if got := strings.ReplaceAll(difference.Of(a, b), "difference_test.", ""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := difference.Of(a, append(b[:50:50], a[51:]...)); strings.Count(got, "\n- ") != 11 ||
		strings.Contains(got, "\n+ ") {
		t.Errorf("one element less:\n%s", got)
	}
}

func TestOfContents(t *testing.T) {
	t.Parallel()
	a := task{Tags: []string{}, Meta: map[string]any{"m": map[string]int{}}, Args: []byte{}}
	b := task{Meta: map[string]any{"m": map[string]int(nil)}}
	if diff := difference.OfContents(a, b); diff != "" {
		t.Error(diff)
	}
	if difference.Of(a, b) == "" {
		t.Error("Of takes nil for empty")
	}
	b.Tags = []string{""}
	if difference.OfContents(a, b) == "" {
		t.Error("an empty list equals a list of an empty text")
	}
}

// Values without a method Equal are equal as for reflect.DeepEqual.
func TestOfIsDeepEqual(t *testing.T) {
	t.Parallel()
	type part struct {
		A int8
		B *bool
		C map[bool]string
		D []*int8
		E [2]uint8
	}
	type whole struct {
		Parts []part
		Map   map[int8]*part
		Text  string
	}
	isRight := func(a, b whole, e uint8, shared bool) bool {
		if len(a.Parts) > 0 && len(b.Parts) > 0 && shared {
			a.Parts, b.Parts = a.Parts[:1], b.Parts[:1]
			a.Parts[0].E[0] = e % 2
			b.Parts[0].A, b.Parts[0].B, b.Parts[0].C = a.Parts[0].A, a.Parts[0].B, a.Parts[0].C
			a.Text, a.Map = b.Text, b.Map
		}
		return (difference.Of(a, b) == "") == reflect.DeepEqual(a, b) && difference.Of(a, a) == ""
	}
	if err := quick.Check(isRight, &quick.Config{MaxCount: 300}); err != nil {
		t.Error(err)
	}
}
