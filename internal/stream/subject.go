package stream

import (
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/ledger"
)

// Name is the name of the stream.
const Name = "LEDGER"

// prefix is the first token of every subject.
const prefix = "ledger"

// AllSubjects is the filter that matches every event.
const AllSubjects = prefix + ".>"

// Relays is the subject on which relays that have a lease publish claims, so that those of copies of a database find
// each other. It is not on the stream.
const Relays = "taskledger.relays"

// bookkeepingPrefix begins the third word of the subjects of reserved kinds. Filters of types for the kinds of users,
// such as ledger.*.succeeded.>, do not match these subjects.
const bookkeepingPrefix = "taskledger-"

// Subject returns the subject of an event: ledger.<shard>.<type>.<kind>, and ledger.<shard>.taskledger-<type>.<kind>
// for a reserved kind.
func Subject(shard ledger.Shard, t ledger.EventType, kind ledger.Kind) string {
	return Pattern(strconv.Itoa(int(shard)), string(t), string(kind))
}

// ParseSubject is the inverse of [Subject]. Its errors wrap [ErrMalformed].
func ParseSubject(subject string) (ledger.Shard, ledger.EventType, ledger.Kind, error) {
	first, rest, _ := strings.Cut(subject, ".")
	number, rest, _ := strings.Cut(rest, ".")
	word, rest, isWhole := strings.Cut(rest, ".")
	if first != prefix || !isWhole {
		return 0, "", "", malformed("subject", subject)
	}
	n, err := strconv.Atoi(number)
	word, isBookkeeping := strings.CutPrefix(word, bookkeepingPrefix)
	shard, t, kind := ledger.Shard(n), ledger.EventType(word), ledger.Kind(rest)
	if err != nil || strconv.Itoa(n) != number || shard.Validate() != nil || t.State() == ledger.StateNone ||
		kind.Validate() != nil || isBookkeeping != reserved.IsKind(kind) {
		return 0, "", "", malformed("subject", subject)
	}
	return shard, t, kind, nil
}

// WorkSubjects returns the filters that match the messages which make tasks of this kind in these
// shards available. They do not overlap.
func WorkSubjects(kind ledger.Kind, shards ledger.ShardSet) []string {
	var filters []string
	for _, row := range ledger.Transitions() {
		if row.Type.WakesWorkers() {
			filters = append(filters, Subjects(row.Type, kind, shards)...)
		}
	}
	return filters
}

// WorkPatterns returns the filters that match the messages which make tasks available, of all kinds but reserved ones.
func WorkPatterns() []string {
	return patterns(func(row ledger.Transition) bool { return row.Type.WakesWorkers() })
}

// OutcomeSubjects returns the filters that match the events with which tasks finish, of all kinds but reserved ones.
func OutcomeSubjects() []string {
	return patterns(func(row ledger.Transition) bool { return row.To.Finished() })
}

// patterns returns the filters for the types of events that match, of all kinds but reserved ones.
func patterns(matches func(ledger.Transition) bool) []string {
	var filters []string
	for _, row := range ledger.Transitions() {
		if matches(row) {
			filters = append(filters, Pattern("*", string(row.Type), ">"))
		}
	}
	return filters
}

// Consumer is one of the two consumers of a kind's workers.
type Consumer struct {
	Durable string
	Filters []string // subjects
}

// Consumers returns the consumers of a kind's workers in these shards. [Durable] is for the tasks as they are
// enqueued, the other one for those that become available again, which are few.
//
// A consumer with one filter costs the server much less for each message than one with several, for which it
// searches the subjects of the stream. So sets of one shard, or of all, are cheap.
//
// The consumer of tasks that become available again is first. A process that creates them in this order has
// both when the one of [Durable] exists, which shows that the kind has workers.
func Consumers(kind ledger.Kind, shards ledger.ShardSet) []Consumer {
	fresh := Subjects(ledger.EventEnqueued, kind, shards)
	again := slices.DeleteFunc(WorkSubjects(kind, shards), func(subject string) bool {
		return slices.Contains(fresh, subject)
	})
	return []Consumer{
		{Durable: Durable(kind, shards) + againSuffix, Filters: again},
		{Durable: Durable(kind, shards), Filters: fresh},
	}
}

// againSuffix begins with a character that is in no kind.
const againSuffix = "=again"

// Subjects returns the filters for the events of one type and kind in these shards: one for all of them, or
// one for each.
func Subjects(t ledger.EventType, kind ledger.Kind, shards ledger.ShardSet) []string {
	if shards == ledger.AllShards {
		return []string{Pattern("*", string(t), string(kind))}
	}
	var filters []string
	for shard := range shards.Shards() {
		filters = append(filters, Subject(shard, t, kind))
	}
	return filters
}

// Durable returns the name of the consumer through which the workers of a kind receive new tasks in these
// shards. It is the kind with '~', which no kind contains, for its dots, which no consumer's name may
// contain. Unless it is for all shards, these follow after a '=', with '+' for commas.
func Durable(kind ledger.Kind, shards ledger.ShardSet) string {
	name := strings.ReplaceAll(string(kind), ".", "~")
	if shards == ledger.AllShards {
		return name
	}
	return name + "=" + strings.ReplaceAll(shards.String(), ",", "+")
}

// Served is the inverse of [Durable]: it returns the kind and the shards that have workers if a consumer of
// this name exists. It reports false for another name.
func Served(durable string) (ledger.Kind, ledger.ShardSet, bool) {
	name, text, sharded := strings.Cut(durable, "=")
	kind, shards := ledger.Kind(strings.ReplaceAll(name, "~", ".")), ledger.AllShards
	if sharded {
		shards, _ = ledger.ParseShardSet(strings.ReplaceAll(text, "+", ","))
	}
	return kind, shards, shards != 0 && kind.Validate() == nil && Durable(kind, shards) == durable
}

// ServedBy returns the kind and shards whose work messages a consumer receives, and whether it belongs to workers. A
// subscriber does not, whatever its name: it has other filters.
func ServedBy(c jetstream.ConsumerConfig) (ledger.Kind, ledger.ShardSet, bool) {
	kind, shards, ok := Served(strings.TrimSuffix(c.Durable, againSuffix))
	filters := c.FilterSubjects
	if c.FilterSubject != "" {
		filters = []string{c.FilterSubject}
	}
	if !ok || len(filters) == 0 {
		return "", 0, false
	}
	work := WorkSubjects(kind, shards)
	for _, filter := range filters {
		if !slices.Contains(work, filter) {
			return "", 0, false
		}
	}
	return kind, shards, true
}

// KindOf returns the kind of a consumer that [Consumers] returned; for another consumer the result is
// undefined.
func KindOf(durable string) ledger.Kind {
	name, _, _ := strings.Cut(durable, "=")
	return ledger.Kind(strings.ReplaceAll(name, "~", "."))
}

// Pattern returns a filter for the events of shards, types and kinds. Shard and type may be "*" for any; kinds may have
// wildcards as [ValidatePattern] allows. It matches reserved kinds only if the first word of kinds is theirs.
func Pattern(shard, t, kinds string) string {
	if reserved.IsKind(kinds) && t != "*" {
		t = bookkeepingPrefix + t
	}
	return prefix + "." + shard + "." + t + "." + kinds
}

// Bookkeeping returns a filter for the events of one type of all reserved kinds.
func Bookkeeping(t ledger.EventType) string { return Pattern("*", string(t), reserved.KindPrefix+">") }

// ValidatePattern returns a [*ledger.InvalidError] if pattern is invalid. A pattern is a kind in which a word
// may be "*" for any word, and the last one ">" for one or more.
func ValidatePattern(pattern string) error {
	words := strings.Split(pattern, ".")
	for i, word := range words {
		if word == "*" || word == ">" && i == len(words)-1 {
			words[i] = "x"
		}
	}
	return ledger.Kind(strings.Join(words, ".")).Validate()
}

var patternEscaper = strings.NewReplacer(".", "~", "*", "+", ">", "#")

// GroupDurable returns the name of a consumer of a group of subscribers on a pattern of kinds. [Durable] and
// [Consumers] never return it, and no two groups, patterns and lanes share one, as long as a group is one
// word of a kind.
func GroupDurable(group, pattern string, lane int) string {
	return group + "=" + patternEscaper.Replace(pattern) + "=" + strconv.Itoa(lane)
}
