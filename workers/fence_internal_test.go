package workers

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// A fence opens as it was sealed, for the same caller and key alone, whatever its task is called.
func FuzzFence(f *testing.F) {
	key := bytes.Repeat([]byte{7}, 32)
	f.Add("a-worker", "mail.send", "order-17", int32(1), int64(1_700_000_000_000), "x.y")
	f.Add("a", "k", "line\nline\n\x00ü.", int32(1<<31-1), int64(0), "")
	f.Fuzz(func(t *testing.T, caller, kind, id string, n int32, until int64, text string) {
		if _, ok := openFence(key, caller, text); ok {
			t.Fatalf("%q is a fence", text)
		}
		if strings.Contains(kind, "\n") { // no kind does
			return
		}
		want := fence{
			Key: ledger.Key{Kind: ledger.Kind(kind), BizID: ledger.BizID(id)}, attempt: ledger.Attempt(n),
			version: ledger.Version(n), worker: caller + "-w", session: sessionHash(text), number: "N",
			begun:   time.UnixMilli(1_700_000_000_123),
			offered: ledger.Version(n / 2), offeredAt: time.UnixMicro(1_700_000_000_123_456), isOnce: n%2 == 0,
			isDeadline: n%3 == 0,
		}
		if until > 0 {
			want.until = time.UnixMilli(until)
		}
		sealed := want.seal(key, caller)
		if got, ok := openFence(key, caller, sealed); !ok || got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		if _, ok := openFence(key, caller+"x", sealed); ok {
			t.Fatal("it opens for another caller")
		}
		if _, ok := openFence(key[1:], caller, sealed); ok {
			t.Fatal("it opens with another key")
		}
	})
}
