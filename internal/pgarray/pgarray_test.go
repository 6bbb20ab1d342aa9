package pgarray_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

func TestBuilder(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 22, 12, 0, 0, 1999, time.UTC)
	for _, test := range []struct {
		name string
		add  func(b *pgarray.Builder)
		want string
	}{
		{name: "empty", add: func(*pgarray.Builder) {}, want: `{}`},
		{name: "texts", add: func(b *pgarray.Builder) { b.Add("a"); b.Add(`"\`); b.Add("") }, want: `{"a","\"\\",""}`},
		{name: "NUL", add: func(b *pgarray.Builder) {
			b.Add("a\x00")
			b.AddOptionalBytes([]byte("\x00b"))
		}, want: `{"a�","�b"}`},
		{name: "numbers", add: func(b *pgarray.Builder) { b.AddInt(1); b.AddInt(-2) }, want: `{1,-2}`},
		{name: "zeros", add: func(b *pgarray.Builder) {
			b.AddOptionalInt(0)
			b.AddOptionalInt(7)
			b.AddOptionalInt(0)
		}, want: `{0,7}`},
		{name: "null between", add: func(b *pgarray.Builder) {
			b.AddOptional("")
			b.AddOptional("a")
			b.AddOptional("")
		}, want: `{NULL,"a"}`},
		{name: "empty between", add: func(b *pgarray.Builder) {
			b.Empties = true
			b.AddOptional("")
			b.AddOptional("a")
			b.AddOptional("")
		}, want: `{"","a"}`},
		{name: "bytes",
			add:  func(b *pgarray.Builder) { b.AddOptionalBytes(nil); b.AddOptionalBytes([]byte(`{"a":1}`)) },
			want: `{NULL,"{\"a\":1}"}`},
		{name: "times", add: func(b *pgarray.Builder) {
			b.AddOptionalTime(noon)
			b.AddOptionalTime(time.Time{})
		}, want: `{"2026-11-22T12:00:00.000001Z"}`},
		{name: "only nulls", add: func(b *pgarray.Builder) { b.AddOptional("") }, want: `{}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var b pgarray.Builder
			test.add(&b)
			for range 2 { // a statement that is executed again has the same literal
				if got := b.String(); got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
			}
		})
	}
	if got := pgarray.OfInts(3, 1); got != "{3,1}" {
		t.Errorf("numbers: %s", got)
	}
}

// A thousand outcomes of workers: texts without a special byte, and JSON.
func BenchmarkBuilder(b *testing.B) {
	const id = "order-0123456"
	data := []byte(`{"worker":"shop-1-6fqz2qv6","started_at":"2026-11-26T18:09:00.123456789Z","duration_ms":0.012}`)
	b.ReportAllocs()
	for b.Loop() {
		var ids, all pgarray.Builder
		ids.Grow(1000, 1000*len(id))
		all.Grow(1000, 1000*(len(data)+16))
		for range 1000 {
			ids.Add(id)
			all.AddOptionalBytes(data)
		}
	}
}

// Every text that PostgreSQL can store comes back from a literal unchanged.
func FuzzOf(f *testing.F) {
	pool := ledgertest.Pool(f)
	for _, text := range []string{"NULL", "null", `"`, `\`, `\\"`, "{", "}", ",", " ", "\n\t\r\v", "'", "\x01",
		"\u0085", "{{a},{b}}"} {
		f.Add(text, "x")
		f.Add("", text)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if strings.Contains(a+b, "\x00") || !utf8.ValidString(a+b) || !utf8.ValidString(a) {
			return // PostgreSQL cannot store it
		}
		want := []string{a, b, a + b}
		rows, err := pool.Query(t.Context(), "select unnest($1::text::text[])", pgarray.Of(want...))
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%q: %v", want, err)
		}
		if diff := difference.Of(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
