package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// A name is compared without regard to case and separators, and with a quarter of its letters wrong, at most three.
func TestSimilarKinds(t *testing.T) {
	t.Parallel()
	known := map[ledger.Kind]bool{}
	for _, k := range []ledger.Kind{"coupon.send", "coupon.print", "Mail-send", "a.b", "c", "taskledger.next"} {
		known[k] = true
	}
	for kind, want := range map[ledger.Kind][]ledger.Kind{
		"coupon.sned": {"coupon.send"}, "Coupon_Send": {"coupon.send"}, "coupons.send": {"coupon.send"},
		"mail.send": {"Mail-send"}, "ab": {"a.b"}, "taskledger.nxt": nil, "coupon": nil, "x.y": nil, "": {"c"},
	} {
		n := &kindNames{known: known, similar: map[ledger.Kind][]ledger.Kind{}}
		if got := n.similarTo(kind); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
}

// The search holds up the calls of all workers: however long the names are, and however much they have in common.
func TestSimilarKindsAreFoundFast(t *testing.T) {
	t.Parallel()
	known := map[ledger.Kind]bool{}
	for i := range maxKinds {
		known[ledger.Kind(fmt.Sprintf("%s%08d", strings.Repeat("a", ledger.MaxKindLen-8), i))] = true
	}
	n := &kindNames{known: known, similar: map[ledger.Kind][]ledger.Kind{}}
	fastest := time.Hour
	for i := range 3 {
		begun := time.Now()
		n.similarTo(ledger.Kind(fmt.Sprintf("%dz%s", i, strings.Repeat("b", ledger.MaxKindLen-2))))
		fastest = min(fastest, time.Since(begun))
	}
	if fastest > 100*time.Millisecond {
		t.Errorf("it took %s", fastest)
	}
}

// However many unknown kinds the workers ask for, the search for similar ones takes little of each second.
func TestSimilarKindsOfManyWorkers(t *testing.T) {
	t.Parallel()
	known := map[ledger.Kind]bool{}
	for i := range maxKinds {
		known[ledger.Kind(fmt.Sprintf("shop.mail.%d", i))] = true
	}
	n := &kindNames{known: known, similar: map[ledger.Kind][]ledger.Kind{}}
	begun := time.Now()
	for i := range maxCompared {
		n.similarTo(ledger.Kind(fmt.Sprintf("shop.mial.%d", i)))
	}
	if d := time.Since(begun); d > time.Second {
		t.Errorf("it took %s", d)
	}
}

// Requests for kinds with tasks cost no statement, and others one in a while: however many they are, also while the
// database fails.
func TestReadsOfKinds(t *testing.T) {
	t.Parallel()
	now := time.Now()
	reads, kinds := 0, []ledger.Kind{"a.b"}
	var failure error
	n := &kindNames{now: func() time.Time { return now }, logger: slog.New(slog.DiscardHandler)}
	n.read = func(context.Context) ([]ledger.Kind, error) {
		reads++
		now = now.Add(time.Second)
		return kinds, failure
	}
	unknown := func(kind ledger.Kind, wantHints, wantReads int) {
		t.Helper()
		for range 100 {
			if got := n.unknown(t.Context(), &caller{}, []ledger.Kind{kind, kind}, time.Time{}); len(got) != wantHints {
				t.Errorf("%s: %v, want %d hints", kind, got, wantHints)
			}
		}
		if reads != wantReads {
			t.Errorf("%s: %d reads, want %d", kind, reads, wantReads)
		}
	}
	unknown("a.b", 0, 1)
	unknown("a.c", 1, 1)
	now = now.Add(kindsShare*time.Second - time.Millisecond) // the read took a second
	unknown("a.c", 1, 1)
	if got := n.unknown(t.Context(), &caller{}, []ledger.Kind{"a.c"}, now); got != nil {
		t.Errorf("%v from kinds that were read before the request", got)
	}
	now = now.Add(time.Millisecond)
	kinds = append(kinds, "a.c")
	unknown("a.c", 0, 2)
	now = now.Add(time.Hour)
	unknown("a.b", 0, 2)
	failure = errors.New("the database is unavailable")
	unknown("a.d", 0, 3)
	failure = nil
	now = now.Add(time.Hour)
	unknown("a.d", 1, 4)
	for i := range maxKinds {
		kinds = append(kinds, ledger.Kind(fmt.Sprint("kind-", i)))
	}
	now = now.Add(time.Hour)
	unknown("a.d", 0, 5)
}
