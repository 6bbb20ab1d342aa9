package tracestate_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/tracestate"
)

func TestPass(t *testing.T) {
	t.Parallel()
	member := func(n, size int) string { // of so many bytes
		key := fmt.Sprintf("k%d=", n)
		return key + strings.Repeat("v", size-len(key))
	}
	many := make([]string, 32)
	for i := range many {
		many[i] = member(i, 5)
	}
	full := strings.Join([]string{member(1, 128), member(2, 128), member(3, 128), member(4, 125)}, ",") // 512
	for name, test := range map[string]struct{ text, want string }{
		"none":       {"", ""},
		"one":        {"rojo=00f067aa0ba902b7", "rojo=00f067aa0ba902b7"},
		"two":        {"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"},
		"a tenant's": {"fw529a3039@dt=FfAz", "fw529a3039@dt=FfAz"},
		"spaces":     {" a=1 ,\tb= 2 3\t,, ", "a=1,b= 2 3"},
		"any character": {"a_-*/@9=" + ` !"#$%&'()*+-./:;<>?[\]^{|}~`,
			"a_-*/@9=" + ` !"#$%&'()*+-./:;<>?[\]^{|}~`},
		"32":                 {strings.Join(many, ","), strings.Join(many, ",")},
		"33":                 {strings.Join(many, ",") + ",more=1", ""},
		"512 bytes":          {full, full},
		"more than that":     {full + ",a=1", full},
		"long ones go first": {member(0, 200) + "," + full, full},
		"the last long one": {member(5, 250) + "," + member(6, 129) + "," + member(7, 251) + ",a=1",
			member(5, 250) + "," + member(6, 129) + ",a=1"},
		"twice":        {"a=1,a=2", ""},
		"beginnings":   {"a=1,ab=2,abc=3", "a=1,ab=2,abc=3"},
		"no value":     {"a=", ""},
		"no key":       {"=1", ""},
		"neither":      {"a", ""},
		"two values":   {"a=1=2", ""},
		"upper case":   {"A=1", ""},
		"begins badly": {"_a=1", ""},
		"control":      {"a=1\x00", ""},
		"line":         {"a=1\r\nb: 2", ""},
		"not ASCII":    {"a=é", ""},
		"longest": {strings.Repeat("k", 255) + "=" + strings.Repeat("v", 256),
			strings.Repeat("k", 255) + "=" + strings.Repeat("v", 256)},
		"key too long":   {strings.Repeat("k", 257) + "=1", ""},
		"value too long": {"a=" + strings.Repeat("v", 257), ""},
	} {
		if got := tracestate.Pass(test.text); got != test.want {
			t.Errorf("%s: %q is passed on as %q, want %q", name, test.text, got, test.want)
		}
	}
}

// The result is well-formed and short enough, and Pass returns it unchanged.
func FuzzPass(f *testing.F) {
	f.Add("rojo=00f067aa0ba902b7, congo=t61rcWkgMzE")
	f.Add(strings.Repeat("a=1,", 40))
	f.Add("a=" + strings.Repeat("v", 250) + ",b=" + strings.Repeat("w", 250) + ",c=" + strings.Repeat("x", 250))
	member := regexp.MustCompile(`^[a-z0-9][a-z0-9_*/@-]*=[ -+\--<>-~]*[!-+\--<>-~]$`)
	f.Fuzz(func(t *testing.T, text string) {
		passed := tracestate.Pass(text)
		if passed == "" {
			return
		}
		for m := range strings.SplitSeq(passed, ",") {
			if !member.MatchString(m) || !strings.Contains(text, m) {
				t.Errorf("%q: member %q", text, m)
			}
		}
		if len(passed) > tracestate.MaxBytes || tracestate.Pass(passed) != passed {
			t.Errorf("%q is passed on as %q", text, passed)
		}
	})
}
