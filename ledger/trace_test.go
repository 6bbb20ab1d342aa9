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
	if err != nil || c.Flags != 1 || c.TraceID[0] != 0x0a || c.TraceID[15] != 0x9c || c.SpanID[0] != 0xb7 || c.SpanID[7] != 0x31 || c.String() != traceparent {
		t.Errorf("%s: %+v, %v", traceparent, c, err)
	}
	if c, err := ledger.ParseTraceparent("cc" + traceparent[2:]); err != nil || c.String() != traceparent {
		t.Errorf("of a later version: %v, %v", c, err)
	}
	for _, bad := range []string{
		"", "00", traceparent[1:], traceparent + "-", traceparent + "0", "ff" + traceparent[2:], strings.ToUpper(traceparent),
		strings.ReplaceAll(traceparent, "-", "_"), strings.Replace(traceparent, "0af7651916cd43dd8448eb211c80319c", strings.Repeat("0", 32), 1),
		strings.Replace(traceparent, "b7ad6b7169203331", strings.Repeat("0", 16), 1), "g" + traceparent[1:], strings.Repeat("é", 27) + "x",
	} {
		c, err := ledger.ParseTraceparent(bad)
		var invalid *ledger.InvalidError
		if !errors.As(err, &invalid) || c != (ledger.TraceContext{}) {
			t.Errorf("%q was taken: %v, %v", bad, c, err)
		}
	}
}

func FuzzParseTraceparent(f *testing.F) {
	f.Add(traceparent)
	f.Add("00-00000000000000000000000000000000-b7ad6b7169203331-01")
	form := regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	none := regexp.MustCompile(`^ff|-0{32}-|-0{16}-`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ledger.ParseTraceparent(text)
		if want := form.MatchString(text) && !none.MatchString(text); want != (err == nil) {
			t.Fatalf("%q: %v, %v", text, c, err)
		}
		if err == nil && c.String() != "00"+text[2:] {
			t.Fatalf("%q became %q", text, c)
		}
	})
}
