package stream_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

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
		"ledger.*.succeeded.>":                                        false,
		"ledger.*.succeeded.taskledger.>":                             false,
		"ledger.*.*.succeeded.>":                                      false,
		"ledger.*.*.coupon.>":                                         false,
		stream.None.Pattern("7", "succeeded", ">"):                    false,
		stream.None.Pattern("7", "succeeded", "*.*"):                  false,
		stream.None.Pattern("*", "succeeded", "taskledger.operation"): true,
		"ledger.*.taskledger-succeeded.taskledger.>":                  true,
		"ledger.*.*.taskledger.>":                                     true,
		stream.AllSubjects:                                            true,
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
		m := stream.Encode(e, nil, stream.Source("i-1"))
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

// Every subject of a valid kind is valid in NATS and leads back to the kind.
func FuzzKindMapping(f *testing.F) {
	f.Add("coupon.send", byte(3))
	f.Add("taskledger.alarm", byte(63))
	f.Add("a-b.c", byte(0))
	f.Add("a..b", byte(0))
	f.Fuzz(func(t *testing.T, a string, shard byte) {
		kind := ledger.Kind(a)
		if kind.Validate() != nil {
			return
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
	}
	if n := len(slices.Compact(slices.Sorted(slices.Values(names)))); n != len(names) {
		t.Errorf("%d names for %d consumers", n, len(names))
	}
}
