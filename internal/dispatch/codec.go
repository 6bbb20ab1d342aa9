package dispatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// The encoding of messages: numbers are varints, texts follow their length, and lists follow their number of elements.
// The first byte is the version of the format.
const codecVersion = 1

// errMessage is the error of bytes that are not a message.
var errMessage = errors.New("invalid message of the dispatcher's protocol")

// MarshalBinary returns the report in bytes. It never fails.
func (r Report) MarshalBinary() ([]byte, error) {
	w := newWriter(64 + 32*len(r.Listed) + 16*len(r.Held))
	w.text(r.Session)
	w.text(r.Incarnation)
	w.numbers(r.Epoch, int64(r.Sent), r.Received, r.After, r.Through)
	w.flag(r.IsLeaving)
	w.sums(r.Asked)
	w.numbers(int64(len(r.Held)))
	for _, h := range r.Held {
		w.numbers(h.First, h.Last)
	}
	w.numbers(int64(len(r.Listed)))
	for _, h := range r.Listed {
		w.key(h.Key)
		w.numbers(int64(h.Version), h.Number)
	}
	return w.b, nil
}

// UnmarshalBinary reads a report. Texts are copied.
func (r *Report) UnmarshalBinary(b []byte) error {
	in := newReader(b)
	*r = Report{Session: in.text(), Incarnation: in.text(), Epoch: in.number(), Sent: time.Duration(in.number()),
		Received: in.number(), After: in.number(), Through: in.number(), IsLeaving: in.flag(), Asked: in.sums()}
	for range in.length(2) {
		r.Held = append(r.Held, Range{in.number(), in.number()})
	}
	listed := in.length(4)
	if listed > maxListed {
		return fmt.Errorf("%w: %d tasks are listed", errMessage, listed)
	}
	for range listed {
		r.Listed = append(r.Listed, Holding{Key: in.key(), Version: ledger.Version(in.number()), Number: in.number()})
	}
	return in.end("report")
}

// MarshalBinary returns the offer in bytes. It never fails.
func (o Offer) MarshalBinary() ([]byte, error) {
	size := 96
	for i := range o.Tasks {
		size += 32 + len(o.Tasks[i].Key.BizID) + len(o.Tasks[i].Content)
	}
	w := newWriter(size)
	w.text(o.Session)
	w.text(o.Incarnation)
	w.numbers(o.Epoch, int64(o.Echo), o.Number, o.Adopted)
	w.sums(o.Given)
	w.numbers(int64(len(o.Tasks)))
	if len(o.Tasks) > 0 {
		w.text(string(o.Tasks[0].Key.Kind))
	}
	for i := range o.Tasks {
		w.task(&o.Tasks[i])
	}
	w.numbers(int64(len(o.Moved)))
	for _, k := range o.Moved {
		w.key(k)
	}
	return w.b, nil
}

// UnmarshalBinary reads an offer. Texts are copied; the contents of tasks are parts of b.
func (o *Offer) UnmarshalBinary(b []byte) error {
	in := newReader(b)
	*o = Offer{Session: in.text(), Incarnation: in.text(), Epoch: in.number(), Echo: time.Duration(in.number()),
		Number: in.number(), Adopted: in.number(), Given: in.sums()}
	if n := in.length(taskSize); n > 0 {
		kind := ledger.Kind(in.text())
		o.Tasks = make([]Task, n)
		for i := range o.Tasks {
			in.task(&o.Tasks[i], kind)
		}
	}
	for range in.length(2) {
		o.Moved = append(o.Moved, in.key())
	}
	return in.end("offer")
}

// taskSize is the size of the smallest task in bytes.
const taskSize = 10

// The flags of a task.
const (
	isAgainFlag = 1 << iota
	hasContentFlag
	hasOrderKeyFlag
)

// writer appends to a message.
type writer struct{ b []byte }

func newWriter(size int) *writer { return &writer{append(make([]byte, 0, size), codecVersion)} }

func (w *writer) numbers(all ...int64) {
	for _, n := range all {
		w.b = binary.AppendVarint(w.b, n)
	}
}

func (w *writer) flag(is bool) {
	n := int64(0)
	if is {
		n = 1
	}
	w.numbers(n)
}

func (w *writer) text(s string) {
	w.b = binary.AppendUvarint(w.b, uint64(len(s)))
	w.b = append(w.b, s...)
}

func (w *writer) bytes(s []byte) {
	w.b = binary.AppendUvarint(w.b, uint64(len(s)))
	w.b = append(w.b, s...)
}

func (w *writer) key(k ledger.Key) {
	w.text(string(k.Kind))
	w.text(string(k.BizID))
}

func (w *writer) sums(sums map[ledger.Kind]int64) {
	w.numbers(int64(len(sums)))
	for _, kind := range slices.Sorted(maps.Keys(sums)) {
		w.text(string(kind))
		w.numbers(sums[kind])
	}
}

func (w *writer) task(t *Task) {
	flags := byte(0)
	if t.IsAgain {
		flags |= isAgainFlag
	}
	if t.Content != nil {
		flags |= hasContentFlag
	}
	if t.OrderKey != "" {
		flags |= hasOrderKeyFlag
	}
	w.b = append(w.b, flags)
	w.text(string(t.Key.BizID))
	w.numbers(int64(t.Version), int64(t.Attempt), int64(t.Shard), int64(t.Priority), int64(t.Position))
	w.text(t.Actor)
	w.text(t.Partition)
	if t.OrderKey != "" {
		w.text(t.OrderKey)
	}
	if t.Content != nil {
		w.bytes(t.Content)
	}
}

// reader reads a message. After the first fault it returns zeros.
type reader struct {
	b      []byte
	failed bool
}

func newReader(b []byte) *reader {
	r := &reader{b: b}
	if len(b) == 0 || b[0] != codecVersion {
		r.fail()
	} else {
		r.b = b[1:]
	}
	return r
}

func (r *reader) fail() { r.b, r.failed = nil, true }

func (r *reader) number() int64 {
	n, size := binary.Varint(r.b)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) flag() bool {
	n := r.number()
	if n != 0 && n != 1 {
		r.fail()
	}
	return n == 1
}

// length returns the number of elements of a list. Each takes at least size bytes, so that a short message cannot
// demand much memory.
func (r *reader) length(size int) int {
	n := r.number()
	if n < 0 || n > int64(len(r.b)/size) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) bytes() []byte {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > uint64(len(r.b)-size) {
		r.fail()
		return nil
	}
	b := r.b[size : size+int(n) : size+int(n)]
	r.b = r.b[size+int(n):]
	return b
}

func (r *reader) text() string { return string(r.bytes()) }

func (r *reader) key() ledger.Key {
	return ledger.Key{Kind: ledger.Kind(r.text()), BizID: ledger.BizID(r.text())}
}

func (r *reader) sums() map[ledger.Kind]int64 {
	n := r.length(2)
	sums := make(map[ledger.Kind]int64, n)
	for range n {
		kind := ledger.Kind(r.text())
		sums[kind] = r.number()
	}
	return sums
}

func (r *reader) task(t *Task, kind ledger.Kind) {
	if len(r.b) == 0 {
		r.fail()
		return
	}
	flags := r.b[0]
	r.b = r.b[1:]
	t.IsAgain = flags&isAgainFlag != 0
	t.Key = ledger.Key{Kind: kind, BizID: ledger.BizID(r.text())}
	t.Version, t.Attempt = ledger.Version(r.number()), ledger.Attempt(r.number())
	t.Shard, t.Priority = ledger.Shard(r.number()), ledger.Priority(r.number())
	t.Position = ledger.Position(r.number())
	t.Actor = r.text()
	t.Partition = r.text()
	if flags&hasOrderKeyFlag != 0 {
		t.OrderKey = r.text()
	}
	if flags&hasContentFlag != 0 {
		t.Content = r.bytes()
	}
}

// end returns an error unless the whole message was read.
func (r *reader) end(what string) error {
	if r.failed || len(r.b) > 0 {
		return fmt.Errorf("%s: %w", what, errMessage)
	}
	return nil
}
