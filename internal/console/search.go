package console

import (
	"cmp"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

// search is the search of the page Tasks.
type search struct {
	Kind      ledger.Kind
	State     ledger.State
	Prefix    string // of the biz_id
	Tag       string
	Error     string // a part of it
	Actor     string // of the first event
	Worker    string // that recorded the last event: the beginning of its name
	Partition string
	Line      string // the order key
	Since     string // a duration such as 90m or 3d: only tasks enqueued since then
}

// searchKeys are the words before a colon in the search box. A word without one begins a biz_id.
var searchKeys = []string{"kind", "state", "error", "actor", "worker", "tag", "partition", "line", "since", "prefix"}

// newSearch returns the search in the parameters of a page.
func newSearch(q url.Values) search {
	return search{Kind: ledger.Kind(q.Get("kind")), State: ledger.State(q.Get("state")), Prefix: q.Get("prefix"),
		Tag: q.Get("tag"), Error: q.Get("error"), Actor: q.Get("actor"), Worker: q.Get("worker"),
		Partition: q.Get("partition"), Line: q.Get("line"), Since: q.Get("since")}
}

// Fields returns the parameters of a search: their names and values in turn.
func (s search) Fields() []any {
	return []any{"kind", s.Kind, "state", s.State, "prefix", s.Prefix, "tag", s.Tag, "error", s.Error,
		"actor", s.Actor, "worker", s.Worker, "partition", s.Partition, "line", s.Line,
		"since", s.Since}
}

// Hidden returns the parameters that are set, as fields of a form.
func (s search) Hidden() (all [][2]string) {
	fields := s.Fields()
	for i := 0; i < len(fields); i += 2 {
		if value := toText(fields[i+1]); value != "" {
			all = append(all, [2]string{toText(fields[i]), value})
		}
	}
	return all
}

// Query returns the parameters for a link.
func (s search) Query() template.URL { return query(s.Fields()...) }

// with returns the search with another value of a parameter.
func (s search) with(name, value string) search {
	switch name {
	case "kind":
		s.Kind = ledger.Kind(value)
	case "state":
		s.State = ledger.State(value)
	case "prefix":
		s.Prefix = value
	case "tag":
		s.Tag = value
	case "error":
		s.Error = value
	case "actor":
		s.Actor = value
	case "worker":
		s.Worker = value
	case "partition":
		s.Partition = value
	case "line":
		s.Line = value
	case "since":
		s.Since = value
	}
	return s
}

// add returns the search with the words of a search box: name:value, where a value with spaces is quoted, or the
// beginning of a biz_id, or kind/biz_id of a known kind.
func (s search) add(text string, kinds []ledger.Kind) search {
	for _, word := range splitWords(text) {
		name, value, isNamed := strings.Cut(word, ":")
		if isNamed && slices.Contains(searchKeys, name) {
			s = s.with(name, strings.Trim(value, `"`))
			continue
		}
		word = strings.Trim(word, `"`)
		if kind, id, isKey := strings.Cut(word, "/"); isKey && slices.Contains(kinds, ledger.Kind(kind)) {
			s.Kind, word = ledger.Kind(kind), id
		}
		s.Prefix = word
	}
	return s
}

// splitWords returns the words of a text. Between quotes, spaces do not end a word.
func splitWords(text string) []string {
	isQuoted := false
	return strings.FieldsFunc(text, func(r rune) bool {
		if r == '"' {
			isQuoted = !isQuoted
		}
		return r == ' ' && !isQuoted
	})
}

// isOnlyKey reports whether the search has only parameters that [projection.FindTasks] and acts on all tasks know.
func (s search) isOnlyKey() bool {
	return cmp.Or(s.Tag, s.Error, s.Actor, s.Worker, s.Partition, s.Line, s.Since) == ""
}

// filter returns the search as a filter of the tasks that were enqueued before a position.
func (s search) filter(at time.Time, after ledger.Position) (projector.TaskFilter, error) {
	f := projector.TaskFilter{Kind: s.Kind, State: s.State, Prefix: s.Prefix, Tag: s.Tag, Error: s.Error,
		Actor: s.Actor, Worker: s.Worker, Partition: s.Partition, OrderKey: s.Line,
		StartAfter: after, Limit: pageTasks, Walk: walk}
	if s.Tag != "" {
		f.Walk = walkTagged
	}
	if s.Since != "" {
		d, err := parseDuration(s.Since)
		if err != nil || d <= 0 {
			return f, invalid("since must be a duration such as 90m, 12h or 3d, got %q", s.Since)
		}
		f.From = at.Add(-d)
	}
	return f, nil
}

// parseDuration parses a duration, which may be in days.
func parseDuration(text string) (time.Duration, error) {
	if days, isDays := strings.CutSuffix(text, "d"); isDays {
		n, err := strconv.ParseUint(days, 10, 12)
		return time.Duration(n) * 24 * time.Hour, err //nolint:gosec // of 12 bits
	}
	return time.ParseDuration(text)
}

// chip is a parameter of the search, with the link that removes it.
type chip struct {
	Text   string
	Remove template.URL
}

// chips returns the parameters of the search except its state, which the tabs show.
func (s search) chips() (all []chip) {
	for _, field := range s.Hidden() {
		if field[0] != "state" {
			all = append(all, chip{field[0] + ": " + field[1], s.with(field[0], "").Query()})
		}
	}
	return all
}
