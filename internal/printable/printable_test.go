package printable_test

import (
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/taskledger/taskledger/internal/printable"
)

func TestText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"order-17 ü 🎟 \\":   "order-17 ü 🎟 \\",
		"a\x1b[31mb":        `a\x1b[31mb`,
		"a\nb\tc\r":         `a\nb\tc\r`,
		"a\u009bb\x7f":      `a\u009bb\x7f`,
		"a\u202eb\u2066":    `a\u202eb\u2066`,
		"a\xffb\xc3":        `a\xffb\xc3`,
		"a\uFFFDb\u00a0\a":  "a\uFFFDb" + `\u00a0\a`,
		"\U000e0041 tagged": `\U000e0041 tagged`,
	} {
		if have := printable.Text(in); have != want {
			t.Errorf("%q: got %q, want %q", in, have, want)
		}
	}
}

func TestStorable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"short ü":     "short ü",
		"12345678":    "12345678",
		"123456789":   "12345678…",
		"1234567ü":    "1234567\uFFFD…", // cut inside a character
		"a\x00b\xffc": "a\uFFFDb\uFFFDc",
	} {
		if have := printable.Storable(in, 8); have != want {
			t.Errorf("%q: got %q, want %q", in, have, want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\x1b[31m\xff\uFFFD")
	f.Fuzz(func(t *testing.T, s string) {
		p := printable.Text(s)
		if !utf8.ValidString(p) {
			t.Errorf("%q is not UTF-8", p)
		}
		for _, r := range p {
			if !unicode.IsPrint(r) {
				t.Errorf("%q has the unprintable %q", p, r)
			}
		}
		if short := printable.Short(s, 5); utf8.RuneCountInString(short) > 5 {
			t.Errorf("%q has more than 5 runes", short)
		}
	})
}

func TestCount(t *testing.T) {
	t.Parallel()
	for in, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -999: "-999", 1234567: "1,234,567",
	} {
		if have := printable.Count(in); have != want {
			t.Errorf("%d: got %q, want %q", in, have, want)
		}
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	for in, want := range map[time.Duration]string{
		-time.Second:            "0ms",
		0:                       "0ms",
		999 * time.Millisecond:  "999ms",
		time.Second:             "1s",
		90 * time.Second:        "1m",
		59 * time.Minute:        "59m",
		47*time.Hour + 1:        "47h",
		48 * time.Hour:          "2d",
		400 * 24 * time.Hour:    "400d",
		1999 * time.Millisecond: "1s",
	} {
		if have := printable.Age(in); have != want {
			t.Errorf("%s: got %q, want %q", in, have, want)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for want, names := range map[string][]string{
		"":                nil,
		"a":               {"a"},
		`a, b\n`:          {"a", "b\n"},
		"a, b and 1 more": {"a", "b", "c"},
	} {
		if have := printable.Names(names, 2); have != want {
			t.Errorf("%q: got %q, want %q", names, have, want)
		}
	}
}
