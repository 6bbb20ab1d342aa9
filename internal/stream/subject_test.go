package stream_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

func TestSubject(t *testing.T) {
	got := stream.Subject(7, ledger.EventEnqueued, "coupon.send")
	if want := "ledger.7.enqueued.coupon.send"; got != want {
		t.Errorf("Subject = %q, want %q", got, want)
	}
	shard, typ, kind, err := stream.ParseSubject(got)
	if err != nil || shard != 7 || typ != ledger.EventEnqueued || kind != "coupon.send" {
		t.Errorf("ParseSubject(%q) = %v, %v, %v, %v", got, shard, typ, kind, err)
	}
}

// Filters of users match no reserved kind, unless they name its first word or leave the type open.
func TestBookkeepingSubjects(t *testing.T) {
	t.Parallel()
	subject := stream.Subject(7, ledger.EventSucceeded, "taskledger.operation")
	if want := "ledger.7.taskledger-succeeded.taskledger.operation"; subject != want {
		t.Errorf("Subject = %q, want %q", subject, want)
	}
	for filter, want := range map[string]bool{
		"ledger.*.succeeded.>":                                   false,
		"ledger.*.succeeded.taskledger.>":                        false,
		"ledger.*.*.succeeded.>":                                 false,
		"ledger.*.*.coupon.>":                                    false,
		stream.Pattern("7", "succeeded", ">"):                    false,
		stream.Pattern("7", "succeeded", "*.*"):                  false,
		stream.Pattern("*", "succeeded", "taskledger.operation"): true,
		stream.Bookkeeping(ledger.EventSucceeded):                true,
		"ledger.*.*.taskledger.>":                                true,
		stream.AllSubjects:                                       true,
	} {
		if got := matches(subject, []string{filter}); got != want {
			t.Errorf("%s matches %s: %v", filter, subject, got)
		}
	}
}

// The message of an event is on its subject.
func TestEncodeOnSubject(t *testing.T) {
	t.Parallel()
	for _, kind := range []ledger.Kind{"coupon.send", "taskledger.alarm"} {
		e := sampleEvent()
		e.Kind = kind
		m := stream.Encode(e, nil, stream.Source("i-1"), 1)
		if want := stream.Subject(e.Shard, e.Type, kind); m.Subject != want {
			t.Errorf("the message of %s is on %s, want %s", kind, m.Subject, want)
		}
	}
}

func TestParseSubjectRefuses(t *testing.T) {
	for _, subject := range []string{
		"", "ledger", "ledger.7.enqueued", "ledger.7.enqueued.", "other.7.enqueued.k", "ledger.64.enqueued.k",
		"ledger.-1.enqueued.k",
		"ledger.07.enqueued.k", "ledger.+7.enqueued.k", "ledger.7.lost.k", "ledger.7.enqueued.a..b",
		"ledger.7.enqueued.*", "ledger.7.enqueued.>",
		"ledger.7.enqueued.taskledger.alarm", "ledger.7.taskledger-enqueued.k", "ledger.7.taskledger-lost.taskledger.x",
	} {
		if _, _, _, err := stream.ParseSubject(subject); !errors.Is(err, stream.ErrMalformed) {
			t.Errorf("ParseSubject(%q): error %v, want ErrMalformed", subject, err)
		}
	}
}

// The two consumers of a kind in some shards divide its work there without overlap. Only one of them shows
// that the kind has workers.
func TestConsumers(t *testing.T) {
	for _, shards := range []ledger.ShardSet{ledger.AllShards, ledger.ShardRange(0, 15), ledger.ShardRange(7, 7)} {
		var filters []string
		for i, c := range stream.Consumers("coupon.send", shards) {
			filters = append(filters, c.Filters...)
			kind, of, ok := stream.Served(c.Durable)
			if ok != (i == 1) || ok && (kind != "coupon.send" || of != shards) {
				t.Errorf("Served(%q) = %q, %s, %v", c.Durable, kind, of, ok)
			}
		}
		want := stream.WorkSubjects("coupon.send", shards)
		slices.Sort(want)
		slices.Sort(filters)
		if diff := cmp.Diff(want, filters); diff != "" {
			t.Errorf("filters (-want +got):\n%s", diff)
		}
	}
}

func TestServedBy(t *testing.T) {
	for _, shards := range []ledger.ShardSet{ledger.AllShards, ledger.ShardRange(0, 15), ledger.ShardRange(7, 7)} {
		for _, c := range stream.Consumers("coupon.send", shards) {
			config := jetstream.ConsumerConfig{Durable: c.Durable, FilterSubjects: c.Filters}
			if len(c.Filters) == 1 {
				config.FilterSubjects, config.FilterSubject = nil, c.Filters[0]
			}
			kind, of, ok := stream.ServedBy(config)
			if !ok || kind != "coupon.send" || of != shards {
				t.Errorf("ServedBy(%q) = %q, %s, %v", c.Durable, kind, of, ok)
			}
		}
	}
	subscribers := []jetstream.ConsumerConfig{
		{Durable: "audit"},
		{Durable: "audit", FilterSubject: "ledger.*.succeeded.>"},
		{Durable: "coupon~send", FilterSubject: "ledger.*.succeeded.coupon.send"},
		{
			Durable:        "coupon~send",
			FilterSubjects: []string{"ledger.*.enqueued.coupon.send", "ledger.*.succeeded.coupon.send"},
		},
		{FilterSubject: "ledger.*.enqueued.coupon.send"},
	}
	for _, config := range subscribers {
		if kind, of, ok := stream.ServedBy(config); ok {
			t.Errorf("the subscriber %+v passes for workers of %q, %s", config, kind, of)
		}
	}
}

func TestWorkSubjects(t *testing.T) {
	want := []string{"ledger.*.enqueued.coupon.send", "ledger.*.released.coupon.send",
		"ledger.*.interrupted.coupon.send"}
	if diff := cmp.Diff(want, stream.WorkSubjects("coupon.send", ledger.AllShards)); diff != "" {
		t.Error(diff)
	}
}

// Every subject and durable of a valid kind is valid in NATS and leads back to the kind. The filters of a
// kind match its own messages and no other kind's.
func FuzzKindMapping(f *testing.F) {
	f.Add("coupon.send", "coupon_send", byte(3), ^uint64(0))
	f.Add("a.b", "a~b", byte(63), uint64(1)<<63)
	f.Add("taskledger.alarm", "alarm", byte(0), ^uint64(0))
	f.Add("a-b.c", "a.b-c", byte(0), uint64(0x5555_5555_5555_5555))
	f.Fuzz(func(t *testing.T, a, b string, shard byte, bits uint64) {
		shards := max(ledger.ShardSet(bits), 1)
		kind, other := ledger.Kind(a), ledger.Kind(b)
		if kind.Validate() != nil {
			if _, _, ok := stream.Served(stream.Durable(kind, shards)); ok && !strings.ContainsAny(a, "~=") {
				t.Errorf("the invalid kind %q has a durable", a)
			}
			return
		}
		durable := stream.Durable(kind, shards)
		if again := stream.Consumers(kind, shards)[0].Durable; strings.ContainsAny(again, ".*>/\\ \t\r\n") ||
			len(again) > server.JSMaxNameLen {
			t.Errorf("Durable(%q) = %q is no name for a consumer", a, durable)
		}
		if back, of, ok := stream.Served(durable); !ok || back != kind || of != shards {
			t.Errorf("Served(%q) = %q, %s, %v, want %q, %s", durable, back, of, ok, a, shards)
		}
		if other != kind && other.Validate() == nil && stream.Durable(other, shards) == durable {
			t.Errorf("%q and %q share the durable %q", a, b, durable)
		}
		for _, row := range ledger.Transitions() {
			s := ledger.Shard(shard) % ledger.Shards
			subject := stream.Subject(s, row.Type, kind)
			if !server.IsValidPublishSubject(subject) {
				t.Errorf("%q is no subject to publish on", subject)
			}
			gotShard, gotType, gotKind, err := stream.ParseSubject(subject)
			if err != nil || gotShard != s || gotType != row.Type || gotKind != kind {
				t.Errorf("ParseSubject(%q) = %v, %v, %v, %v", subject, gotShard, gotType, gotKind, err)
			}
			if got := matches(subject, stream.WorkSubjects(kind, shards)); got != (row.Type.WakesWorkers() &&
				shards.Has(s)) {
				t.Errorf("work filters of %q match %q: %v", a, subject, got)
			}
			if other != kind && other.Validate() == nil && matches(subject, stream.WorkSubjects(other, shards)) {
				t.Errorf("work filters of %q match %q", b, subject)
			}
		}
	})
}

func matches(subject string, filters []string) bool {
	for _, filter := range filters {
		if server.SubjectsCollide(subject, filter) {
			return true
		}
	}
	return false
}

func TestGroupDurablesAreDistinct(t *testing.T) {
	t.Parallel()
	var names []string
	for _, group := range []string{"a", "a-b"} {
		for _, topic := range []string{"a", "a.b", "a.*", "a.>", ">", "*", "a-b", "a_b"} {
			for lane := range 12 {
				names = append(names, stream.GroupDurable(group, topic, lane))
			}
		}
	}
	for _, name := range names {
		if strings.ContainsAny(name, ".*> /\\\t") {
			t.Errorf("%s is not a valid name of a consumer", name)
		}
		if _, _, ok := stream.Served(name); ok {
			t.Errorf("%s is the name of a worker's consumer", name)
		}
	}
	if n := len(slices.Compact(slices.Sorted(slices.Values(names)))); n != len(names) {
		t.Errorf("%d names for %d consumers", n, len(names))
	}
}
