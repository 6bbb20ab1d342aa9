package dispatch

import (
	"bytes"
	"errors"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
)

func exampleReport() Report {
	return Report{Session: "s", Incarnation: "i/1", Epoch: 7, Sent: 123, Received: 9, IsLeaving: true,
		After: -3, Through: 0, Asked: map[ledger.Kind]int64{testKind: 5, "other": 6},
		Held:   []Range{{First: -2, Last: 0}, {First: 8, Last: 9}},
		Listed: []Holding{{Key: ledger.Key{Kind: testKind, BizID: "ä/1"}, Version: 4, Number: -2}}}
}

func exampleOffer() Offer {
	return Offer{Session: "s", Incarnation: "i/1", Epoch: 7, Echo: 99, Number: 3, Adopted: notAdopted,
		Given: map[ledger.Kind]int64{testKind: 4, "other": 5}, Tasks: []Task{
			{Key: ledger.Key{Kind: testKind, BizID: "a"}, Version: 1, Position: 12, Shard: 63,
				Content: []byte(`{"a":1}`)},
			{Key: ledger.Key{Kind: testKind, BizID: "b"}, Version: 3, Attempt: 2, Position: 13, Actor: "w",
				Partition: "tenant-7", OrderKey: "customer/17", IsAgain: true},
			{Key: ledger.Key{Kind: testKind, BizID: "c"}, Version: 1, Position: 14, Content: []byte{}},
		}}
}

func TestMessagesSurviveTheWire(t *testing.T) {
	report, offer := exampleReport(), exampleOffer()
	b, _ := report.MarshalBinary()
	var r Report
	if err := r.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	same(t, "report", r, report)
	for n := range b {
		if err := r.UnmarshalBinary(b[:n]); !errors.Is(err, errMessage) {
			t.Errorf("a report of %d bytes of %d: %v", n, len(b), err)
		}
	}
	b, _ = offer.MarshalBinary()
	var o Offer
	if err := o.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	same(t, "offer", o, offer)
	for n := range b {
		if err := o.UnmarshalBinary(b[:n]); !errors.Is(err, errMessage) {
			t.Errorf("an offer of %d bytes of %d: %v", n, len(b), err)
		}
	}
}

func FuzzMessages(f *testing.F) {
	b, _ := exampleReport().MarshalBinary()
	f.Add(b)
	b, _ = exampleOffer().MarshalBinary()
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, r2 Report
		if r.UnmarshalBinary(b) == nil {
			again, _ := r.MarshalBinary()
			err := r2.UnmarshalBinary(again)
			if diff := difference.OfContents(r, r2); diff != "" || err != nil {
				t.Errorf("decoded from %x: %v (-first +second):\n%s", again, err, diff)
			}
		}
		var o, o2 Offer
		if o.UnmarshalBinary(b) == nil {
			again, _ := o.MarshalBinary()
			err := o2.UnmarshalBinary(again)
			if diff := difference.OfContents(o, o2); diff != "" || err != nil {
				t.Errorf("decoded from %x: %v (-first +second):\n%s", again, err, diff)
			}
		}
	})
}

func identity(t *testing.T) Identity {
	t.Helper()
	i, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func seal(t *testing.T, side Side, own Identity, peer []byte, c Conversation) *Seal {
	t.Helper()
	s, err := NewSeal(side, own, peer, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A message opens at the other side of its own conversation, and nowhere else.
func TestSealedMessages(t *testing.T) {
	c := Conversation{Session: "s", Incarnation: "i", Epoch: 3}
	worker, dispatcher, hostile := identity(t), identity(t), identity(t)
	w := seal(t, WorkerSide, worker, dispatcher.Public(), c)
	d := seal(t, DispatcherSide, dispatcher, worker.Public(), c)
	message := []byte("coupon")
	sealed := d.Seal(message)
	if bytes.Contains(sealed, message) {
		t.Error("the message is readable")
	}
	if got, err := w.Open(sealed); err != nil || !bytes.Equal(got, message) {
		t.Fatalf("opened %q, %v", got, err)
	}
	if got, err := d.Open(w.Seal(message)); err != nil || !bytes.Equal(got, message) {
		t.Fatalf("opened %q, %v", got, err)
	}
	if bytes.Equal(sealed, d.Seal(message)) {
		t.Error("a number was used twice")
	}
	later, other := c, c
	later.Epoch, other.Session = 4, "s2"
	for name, s := range map[string]*Seal{
		"its own sender":        d,
		"another worker":        seal(t, WorkerSide, hostile, dispatcher.Public(), c),
		"another dispatcher":    seal(t, WorkerSide, worker, hostile.Public(), c),
		"another epoch":         seal(t, WorkerSide, worker, dispatcher.Public(), later),
		"another session":       seal(t, WorkerSide, worker, dispatcher.Public(), other),
		"the dispatcher's side": seal(t, DispatcherSide, worker, dispatcher.Public(), c),
	} {
		if _, err := s.Open(sealed); !errors.Is(err, ErrSeal) {
			t.Errorf("%s opened it: %v", name, err)
		}
	}
	for i := range sealed {
		forged := bytes.Clone(sealed)
		forged[i] ^= 1
		if _, err := w.Open(forged); !errors.Is(err, ErrSeal) {
			t.Errorf("opened with byte %d changed: %v", i, err)
		}
		if _, err := w.Open(sealed[:i]); !errors.Is(err, ErrSeal) {
			t.Errorf("opened %d bytes: %v", i, err)
		}
	}
}

// A public key with which anyone knows the secret is refused.
func TestWeakPublicKeys(t *testing.T) {
	for _, key := range [][]byte{nil, make([]byte, 31), make([]byte, 32)} {
		if _, err := NewSeal(WorkerSide, identity(t), key, Conversation{}); err == nil {
			t.Errorf("key %x was accepted", key)
		}
	}
}

func BenchmarkOffer(b *testing.B) {
	o := exampleOffer()
	for len(o.Tasks) < maxListed {
		o.Tasks = append(o.Tasks, o.Tasks[0])
	}
	worker, _ := NewIdentity()
	dispatcher, _ := NewIdentity()
	w, _ := NewSeal(WorkerSide, worker, dispatcher.Public(), Conversation{})
	d, _ := NewSeal(DispatcherSide, dispatcher, worker.Public(), Conversation{})
	for b.Loop() {
		plain, _ := o.MarshalBinary()
		opened, err := w.Open(d.Seal(plain))
		var got Offer
		if err != nil || got.UnmarshalBinary(opened) != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/maxListed, "ns/task")
}
