package ledger_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestParseTraceparent(t *testing.T) {
	t.Parallel()
	c, err := ledger.ParseTraceparent(traceparent)
	want := ledger.TraceContext{
		TraceID: [16]byte{
			0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c,
		},
		SpanID: [8]byte{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31},
		Flags:  1,
	}
	if err != nil || c != want || c.String() != traceparent {
		t.Errorf("%s: %+v, %v", traceparent, c, err)
	}
	if c, err := ledger.ParseTraceparent("cc" + traceparent[2:]); err != nil || c.String() != traceparent {
		t.Errorf("a later version: %v, %v", c, err)
	}
	for _, bad := range []string{
		"", "00", traceparent[1:], traceparent + "-", traceparent + "0", "g" + traceparent[1:], "ff" + traceparent[2:],
		strings.ToUpper(traceparent), strings.ReplaceAll(traceparent, "-", "_"), strings.Repeat("é", 27) + "x",
		strings.Replace(traceparent, "0af7651916cd43dd8448eb211c80319c", strings.Repeat("0", 32), 1),
		strings.Replace(traceparent, "b7ad6b7169203331", strings.Repeat("0", 16), 1),
	} {
		c, err := ledger.ParseTraceparent(bad)
		var invalid *ledger.InvalidError
		if !errors.As(err, &invalid) || c != (ledger.TraceContext{}) {
			t.Errorf("%q is valid: %v, %v", bad, c, err)
		}
	}
}

// ParseTraceparent accepts exactly the texts of the form that are not forbidden.
func FuzzParseTraceparent(f *testing.F) {
	f.Add(traceparent)
	f.Add("00-00000000000000000000000000000000-b7ad6b7169203331-01")
	form := regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	forbidden := regexp.MustCompile(`^ff|-0{32}-|-0{16}-`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ledger.ParseTraceparent(text)
		if want := form.MatchString(text) && !forbidden.MatchString(text); want != (err == nil) {
			t.Fatalf("%q: %v, %v", text, c, err)
		}
		if err == nil && c.String() != "00"+text[2:] {
			t.Fatalf("%q is printed as %q", text, c)
		}
	})
}
