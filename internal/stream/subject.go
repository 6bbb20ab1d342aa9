package stream

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/taskledger/taskledger/ledger"
)

// Name is the name of the stream.
const Name = "LEDGER"

// prefix is the first token of every subject.
const prefix = "ledger"

// AllSubjects is the filter that matches every event.
const AllSubjects = prefix + ".>"

// Subject returns where an event is published: ledger.<shard>.<type>.<kind>.
func Subject(shard ledger.Shard, t ledger.EventType, kind ledger.Kind) string {
	return prefix + "." + strconv.Itoa(int(shard)) + "." + string(t) + "." + string(kind)
}

// ParseSubject is the inverse of [Subject]. Its errors wrap [ErrMalformed].
func ParseSubject(subject string) (ledger.Shard, ledger.EventType, ledger.Kind, error) {
	parts := strings.SplitN(subject, ".", 4)
	if len(parts) != 4 || parts[0] != prefix {
		return 0, "", "", malformed("subject", subject)
	}
	n, err := strconv.Atoi(parts[1])
	shard, t, kind := ledger.Shard(n), ledger.EventType(parts[2]), ledger.Kind(parts[3])
	if err != nil || strconv.Itoa(n) != parts[1] || shard.Validate() != nil || t.State() == ledger.StateNone || kind.Validate() != nil {
		return 0, "", "", malformed("subject", subject)
	}
	return shard, t, kind, nil
}

// WorkSubjects returns the filters that match the messages which make tasks of this kind
// available, in any shard. They do not overlap.
func WorkSubjects(kind ledger.Kind) []string {
	var filters []string
	for _, row := range ledger.Transitions() {
		if row.Type.WakesWorkers() {
			filters = append(filters, fmt.Sprintf("%s.*.%s.%s", prefix, row.Type, kind))
		}
	}
	return filters
}

// Durable returns the name of the consumer that the workers of a kind share: the kind with '~',
// which no kind contains, for its dots, which no consumer's name may contain.
func Durable(kind ledger.Kind) string { return strings.ReplaceAll(string(kind), ".", "~") }

// KindOf is the inverse of [Durable]; false if no kind has a durable of this name.
func KindOf(durable string) (ledger.Kind, bool) {
	if strings.Contains(durable, ".") {
		return "", false
	}
	kind := ledger.Kind(strings.ReplaceAll(durable, "~", "."))
	return kind, kind.Validate() == nil
}
