package api

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

// preconditions are the headers of a request that compare the version of a task (RFC 9110, section 13). The API stores
// no times of modification, so it ignores headers of a read that compare times.
type preconditions struct {
	match, noneMatch tags
}

// tags are the entity tags of a header, nil if it was not sent.
type tags []tag

// tag is an entity tag.
type tag struct {
	isAny  bool // *
	isWeak bool
	text   string // without quotes
}

// parsePreconditions returns the preconditions of a request. A change with If-Unmodified-Since is refused, because the
// task must not change if the API ignores the header.
func parsePreconditions(r *http.Request) (p preconditions, err error) {
	isRead := r.Method == http.MethodGet || r.Method == http.MethodHead
	if r.Header.Get("If-Unmodified-Since") != "" && !isRead {
		return p, invalid("If-Unmodified-Since", "is not supported; send If-Match with the ETag of the task")
	}
	if p.match, err = parseTags(r.Header, "If-Match"); err == nil {
		p.noneMatch, err = parseTags(r.Header, "If-None-Match")
	}
	return p, err
}

// refusePreconditions returns an error if a change of something without versions has preconditions.
func refusePreconditions(r *http.Request) error {
	for _, name := range []string{"If-Match", "If-None-Match", "If-Unmodified-Since"} {
		if len(r.Header.Values(name)) > 0 {
			return invalid(name, "is for one task; this call has no versions")
		}
	}
	return nil
}

// parseTags returns the tags of a header. It refuses a header without tags.
func parseTags(header http.Header, name string) (all tags, err error) {
	lines := header.Values(name)
	if len(lines) > 0 && strings.Trim(strings.Join(lines, ""), ", \t") == "" {
		return nil, invalid(name, "must not be empty")
	}
	for _, line := range lines {
		for line != "" {
			var part string
			part, line = cutTag(line)
			part = strings.TrimSpace(part)
			text, isWeak := strings.CutPrefix(part, "W/")
			isQuoted := len(text) >= 2 && text[0] == '"' && strings.IndexByte(text[1:], '"') == len(text)-2
			switch {
			case part == "": // RFC 9110, 5.6.1.2
			case part == "*":
				all = append(all, tag{isAny: true})
			case isQuoted:
				all = append(all, tag{isWeak: isWeak, text: text[1 : len(text)-1]})
			default:
				return nil, invalid(name, `must be * or ETags such as "3", got %s`, printable.Short(part, 80))
			}
		}
	}
	return all, nil
}

// cutTag returns the text before and after the first comma outside of tags. In them a backslash escapes nothing, other
// than in quoted strings (RFC 9110, 8.8.3).
func cutTag(line string) (before, after string) {
	isQuoted := false
	for i := range len(line) {
		switch {
		case line[i] == '"':
			isQuoted = !isQuoted
		case line[i] == ',' && !isQuoted:
			return line[:i], line[i+1:]
		}
	}
	return line, ""
}

// haveStrong reports whether a strong tag names the version, for If-Match.
func (all tags) haveStrong(v ledger.Version) bool {
	for _, t := range all {
		if t.isAny || !t.isWeak && t.isOf(v) {
			return true
		}
	}
	return false
}

// have reports whether a tag names the version, for If-None-Match.
func (all tags) have(v ledger.Version) bool {
	for _, t := range all {
		if t.isAny || t.isOf(v) {
			return true
		}
	}
	return false
}

// haveZipped reports whether a tag names the compressed answer with the version.
func (all tags) haveZipped(v ledger.Version) bool {
	return slices.ContainsFunc(all, func(t tag) bool { return t.text == strconv.Itoa(int(v))+zippedSuffix })
}

// isOf reports whether the tag names the version. The tag of a compressed answer ends with a suffix, of the API or of a
// proxy: -gzip, --gzip or ;gzip.
func (t tag) isOf(v ledger.Version) bool {
	suffix, ok := strings.CutPrefix(t.text, strconv.Itoa(int(v)))
	return ok && (suffix == "" || suffix[0] == '-' || suffix[0] == ';')
}

// check returns the problem of a request whose preconditions a task does not meet. For a read, If-None-Match is not a
// problem: the answer is 304.
func (p preconditions) check(t ledger.Task, isRead bool) error {
	switch {
	case p.match != nil && !p.match.haveStrong(t.Version):
		return failedPrecondition("If-Match", t.State, t.Version)
	case !isRead && p.noneMatch.have(t.Version):
		return failedPrecondition("If-None-Match", t.State, t.Version)
	}
	return nil
}

// failedPrecondition returns the problem of a request with a header that the version of the task does not meet.
func failedPrecondition(header string, s ledger.State, v ledger.Version) error {
	p := problem(codePrecondition, "the task is at version "+strconv.Itoa(int(v))+", which "+header+" excludes")
	p.Field, p.State, p.Version = header, s, v
	return p
}
