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
		{args: nil, env: "", want: formatTable},
		{args: nil, env: "json", want: formatJSON},
		{args: nil, env: "xml", want: formatTable},
		{args: []string{"-o", "json"}, env: "", want: formatJSON},
		{args: []string{"x", "-ojsonl"}, env: "json", want: formatJSONL},
		{args: []string{"-o=json"}, env: "", want: formatJSON},
		{args: []string{"--output", "json"}, env: "", want: formatJSON},
		{args: []string{"--output=json", "-o", "table"}, env: "", want: formatTable},
		{args: []string{"-o"}, env: "", want: formatTable},
		{args: []string{"--other=json"}, env: "", want: formatTable},
	} {
		if have := guessFormat(c.args, c.env); have != c.want {
			t.Errorf("%q %q: got %s, want %s", c.args, c.env, have, c.want)
		}
	}
}
