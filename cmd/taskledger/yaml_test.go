package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// JSON from YAML has what is written: no number loses a digit, and no text becomes a time or a number.
func TestYAMLKeepsWhatIsWritten(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ yaml, want string }{
		{yaml: `{b: 1, a: 2}`, want: `{"b":1,"a":2}`},
		{yaml: `123456789012345678901234567890`, want: `123456789012345678901234567890`},
		{yaml: `[1.10, 1e3, -0.0, 1e400000, 18446744073709551616]`,
			want: `[1.10,1e3,-0.0,1e400000,18446744073709551616]`},
		{yaml: `[2026-01-01, 2026-01-01T09:00:00Z, 2026-01-01 09:00:00, 12:30]`,
			want: `["2026-01-01","2026-01-01T09:00:00Z","2026-01-01 09:00:00","12:30"]`},
		{yaml: `[no, NO, yes, on, y, True, FALSE, true]`, want: `["no","NO","yes","on","y",true,false,true]`},
		{yaml: `[~, null, Null, "null", '~', ]`, want: `[null,null,null,"null","~"]`},
		{yaml: `["010", '0x1F', !!str 010, !!str true, 0.1.2, 1.2.3.4, 08:00, 1-2]`,
			want: `["010","0x1F","010","true","0.1.2","1.2.3.4","08:00","1-2"]`},
		{yaml: "{1: a, true: b, 2026-01-01: c, ~: d, 'x y': e, }",
			want: `{"1":"a","true":"b","2026-01-01":"c","~":"d","x y":"e"}`},
		{yaml: "a: |\n  <b> & \"q\"\n  2\nc: >-\n  1\n  2\n", want: `{"a":"<b> & \"q\"\n2\n","c":"1 2"}`},
		{yaml: "a:\nb: []\nc: {}\n", want: `{"a":null,"b":[],"c":{}}`},
		{yaml: "x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\nz: [*x, {<<: [*x, {c: 4}]}]\n",
			want: `{"x":{"a":1,"b":2},"y":{"b":3,"a":1},"z":[{"a":1,"b":2},{"a":1,"b":2,"c":4}]}`},
		{yaml: "", want: `null`},
		{yaml: "# only a comment\n", want: `null`},
		{yaml: "---\n", want: `null`},
	} {
		got, err := yamlToJSON([]byte(tc.yaml))
		if err != nil || string(got) != tc.want {
			t.Errorf("%s\nis %s, %v\nwant %s", tc.yaml, got, err, tc.want)
		}
	}
	for _, tc := range []struct{ yaml, want string }{
		{yaml: "a: 1\nargs: {n: 010}", want: "line 2: 010 is a number, but not one of JSON"},
		{yaml: `0o10`, want: `line 1: 0o10 is a number`},
		{yaml: `0x1F`, want: `line 1: 0x1F is a number`},
		{yaml: `0b11`, want: `line 1: 0b11 is a number`},
		{yaml: `1_000`, want: `line 1: 1_000 is a number`},
		{yaml: `+1`, want: `line 1: +1 is a number`},
		{yaml: `.5`, want: `line 1: .5 is a number`},
		{yaml: `1.`, want: `line 1: 1. is a number`},
		{yaml: `.inf`, want: `line 1: .inf is a number`},
		{yaml: `.NaN`, want: `line 1: .NaN is a number`},
		{yaml: `!!binary aGk=`, want: `line 1: unknown tag !!binary`},
		{yaml: `!!int "1"`, want: `line 1: unknown tag !!int`},
		{yaml: `!secret x`, want: `line 1: unknown tag !secret`},
		{yaml: `!list [x]`, want: `line 1: unknown tag !list`},
		{yaml: `!!set {x}`, want: `line 1: must be a mapping`},
		{yaml: "a: 1\na: 2", want: `line 2: the member "a" must be given once`},
		{yaml: `{[1]: 2}`, want: `line 1: the name of a member`},
		{yaml: `&a [*a]`, want: `contains itself`},
		{yaml: `&a {x: *a}`, want: `contains itself`},
		{yaml: `&a {<<: *a}`, want: `line 1: the anchor a merges itself`},
		{yaml: "a: 1\n---\na: 2", want: `more than one YAML document`},
		{yaml: `*`, want: `neither JSON nor YAML`},
	} {
		if got, err := yamlToJSON([]byte(tc.yaml)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s\nis %s, %v\nwant %s", tc.yaml, got, err, tc.want)
		}
	}
}

// Mappings that merge each other in many ways are each read once: 11 lines would else be 10^10 mappings.
func TestYAMLMergesEachMappingOnce(t *testing.T) {
	t.Parallel()
	text := "a0: &a0 {x: 1}\n"
	want := `{"a0":{"x":1}`
	for i := 1; i <= 10; i++ {
		merged := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ",")
		text += fmt.Sprintf("a%d: &a%[1]d {<<: [%s]}\n", i, merged)
		want += fmt.Sprintf(`,"a%d":{"x":1}`, i)
	}
	if got, err := yamlToJSON([]byte(text)); err != nil || string(got) != want+"}" {
		t.Errorf("%s, %v", got, err)
	}
}

// Any text is refused or becomes valid JSON.
func FuzzYAML(f *testing.F) {
	for _, text := range []string{
		"a: &a {x: [1, *a]}", "{<<: {<<: {a: 1}}}", "? [a]\n: b", "- |\n  x", "!!str 1", "&a a: *a",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := yamlToJSON([]byte(text)); err == nil && !json.Valid(got) {
			t.Errorf("%q is %q", text, got)
		}
	})
}
