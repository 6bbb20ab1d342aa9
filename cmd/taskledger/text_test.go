package main

import (
	"encoding/json"
	"testing"
	"unicode"
)

func FuzzEscapeControls(f *testing.F) {
	f.Add("a\u009b\x7f\x1b")
	f.Fuzz(func(t *testing.T, s string) {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		escaped := escapeControls(text)
		if json.Unmarshal(text, &before) != nil || json.Unmarshal(escaped, &after) != nil || before != after {
			t.Errorf("%q became %q", before, after)
		}
		for _, r := range string(escaped) {
			if unicode.IsControl(r) {
				t.Errorf("%q holds %q", escaped, r)
			}
		}
	})
}

func TestGuessFormat(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		env  string
		want format
	}{
		{nil, "", formatTable},
		{nil, "json", formatJSON},
		{nil, "xml", formatTable},
		{[]string{"-o", "json"}, "", formatJSON},
		{[]string{"x", "-ojsonl"}, "json", formatJSONL},
		{[]string{"-o=json"}, "", formatJSON},
		{[]string{"--output", "json"}, "", formatJSON},
		{[]string{"--output=json", "-o", "table"}, "", formatTable},
		{[]string{"-o"}, "", formatTable},
		{[]string{"--other=json"}, "", formatTable},
	} {
		if have := guessFormat(c.args, c.env); have != c.want {
			t.Errorf("%q %q: got %s, want %s", c.args, c.env, have, c.want)
		}
	}
}
