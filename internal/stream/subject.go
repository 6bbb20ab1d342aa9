package stream

import (
	"strconv"
	"strings"

	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/ledger"
)

// Name is the name of the stream of a ledger without a [Prefix].
const Name = "LEDGER"

// prefix is the first token of every subject of an event, after the ledger's [Prefix].
const prefix = "ledger"

// AllSubjects is the filter that matches every event of a ledger without a [Prefix].
const AllSubjects = prefix + ".>"

// Copies is [Prefix.Copies] of a ledger without a [Prefix].
const Copies = "taskledger.copies"

// wake is [Prefix.Wake] of a ledger without a [Prefix].
const wake = "taskledger.wake"

// bookkeepingPrefix begins the third word of the subjects of reserved kinds. Filters of types for the kinds of users,
// such as ledger.*.succeeded.>, do not match these subjects.
const bookkeepingPrefix = "taskledger-"

// Subject returns the subject of an event of a ledger without a [Prefix]: ledger.<shard>.<type>.<kind>, and
// ledger.<shard>.taskledger-<type>.<kind> for a reserved kind.
func Subject(shard ledger.Shard, t ledger.EventType, kind ledger.Kind) string {
	return None.Pattern(strconv.Itoa(int(shard)), string(t), string(kind))
}

// IsOfEvents reports whether the stream of a ledger may take messages on a subject.
func IsOfEvents(subject string) bool {
	_, isEvent := cutPrefix(subject)
	return isEvent
}

// cutPrefix returns the subject of an event without its first words.
func cutPrefix(subject string) (rest string, isEvent bool) {
	first, rest, _ := strings.Cut(subject, ".")
	if second, behind, isLonger := strings.Cut(rest, "."); second == prefix && isLonger &&
		first != "" && Prefix(first).Validate() == nil {
		return behind, true
	}
	return rest, first == prefix
}

// ParseSubject is the inverse of [Subject]. It ignores a [Prefix]. Its errors wrap [ErrMalformed].
func ParseSubject(subject string) (ledger.Shard, ledger.EventType, ledger.Kind, error) {
	rest, isEvent := cutPrefix(subject)
	number, rest, _ := strings.Cut(rest, ".")
	word, rest, isWhole := strings.Cut(rest, ".")
	if !isEvent || !isWhole {
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
