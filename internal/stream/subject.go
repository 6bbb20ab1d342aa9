package stream

import (
	"strconv"
	"strings"

	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/ledger"
)

// Name is the name of the stream.
const Name = "LEDGER"

// prefix is the first token of every subject.
const prefix = "ledger"

// AllSubjects is the filter that matches every event.
const AllSubjects = prefix + ".>"

// Copies is the subject on which relays and dispatchers ask whether a copy of their database works. Those that hold a
// lease answer. It is not on the stream.
const Copies = "taskledger.copies"

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

// OutcomeSubjects returns the filters that match the events with which tasks finish, of all kinds but reserved ones.
func OutcomeSubjects() []string {
	var filters []string
	for _, row := range ledger.Transitions() {
		if row.To.Finished() {
			filters = append(filters, Pattern("*", string(row.Type), ">"))
		}
	}
	return filters
}

// Pattern returns a filter for the events of shards, types and kinds. Shard and type may be "*" for any; kinds may have
// wildcards as [ValidatePattern] allows. It matches reserved kinds only if the first word of kinds is theirs.
func Pattern(shard, t, kinds string) string {
	if reserved.IsKind(kinds) && t != "*" {
		t = bookkeepingPrefix + t
	}
	return prefix + "." + shard + "." + t + "." + kinds
}

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

// GroupDurable returns the name of a consumer of a group of subscribers on a pattern of kinds. No two groups, patterns
// and lanes share one, as long as a group is one word of a kind.
func GroupDurable(group, pattern string, lane int) string {
	return group + "=" + patternEscaper.Replace(pattern) + "=" + strconv.Itoa(lane)
}
