package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
)

const (
	defaultPage = 1000
	maxPage     = 10_000
)

// pageFlags are the options of a list that has pages.
type pageFlags struct {
	limit int
	after string
}

// readPage returns a page of a list, and the name at which to continue, or "". read returns at most limit elements
// after a name, in the order of their names.
func readPage[E any, N ~string](
	ctx context.Context, db ledger.DB, f pageFlags,
	read func(ctx context.Context, db ledger.DB, after N, limit int) ([]E, error), name func(E) N,
) (page []E, next N, err error) {
	return cutPage(f.limit, func(limit int) ([]E, error) { return read(ctx, db, N(f.after), limit) }, name)
}

// cutPage returns the first limit elements of a list, and the place at which to continue, or the zero place if the list
// ends there. read returns at most limit elements. cutPage calls it with one more, to see whether the list ends.
func cutPage[E any, P comparable](
	limit int, read func(limit int) ([]E, error), place func(E) P,
) (page []E, next P, err error) {
	page, err = read(limit + 1)
	if err == nil && len(page) > limit {
		page = page[:limit]
		next = place(page[limit-1])
	}
	return append([]E{}, page...), next, err
}

// noteNext writes a note for people if a list continues after a place, and reports whether it did. In JSON, the list's
// member "next" contains the place.
func noteNext[P ~string | ~int32 | ~int64](a *app, next P) bool {
	var none P
	if next == none || a.config.output == formatJSON {
		return false
	}
	fmt.Fprintf(a.stderr, "there are more: continue with --after %s\n", shellWord(fmt.Sprint(next)))
	return true
}

// taskPlace returns the place of a task in a list by key, for --after. It escapes the kind, because a role with INSERT
// can forge a kind that contains a slash.
func taskPlace(k ledger.Key) string { return url.PathEscape(string(k.Kind)) + "/" + string(k.BizID) }

// parseTaskPlace is the reverse of taskPlace. "" is the place before the first task.
func parseTaskPlace(place string) (k ledger.Key, err error) {
	escaped, id, _ := strings.Cut(place, "/")
	kind, err := url.PathUnescape(escaped)
	if err != nil {
		return k, usagef("--after must be KIND/BIZ_ID, got %q", place)
	}
	return ledger.Key{Kind: ledger.Kind(kind), BizID: ledger.BizID(id)}, nil
}

// eventPlace returns the place of an event in a list by key and version, for --after.
func eventPlace(k ledger.Key, v ledger.Version) string { return fmt.Sprintf("%s/%d", taskPlace(k), v) }

// parseEventPlace is the reverse of eventPlace. "" is the place before the first event.
func parseEventPlace(place string) (e subscribers.EventName, err error) {
	if place == "" {
		return e, nil
	}
	slash := strings.LastIndexByte(place, '/')
	version, err := strconv.ParseInt(place[slash+1:], 10, 32)
	if err == nil && strings.Contains(place[:max(slash, 0)], "/") {
		e.Version = ledger.Version(version)
		e.Key, err = parseTaskPlace(place[:slash])
	} else {
		err = usagef("--after must be KIND/BIZ_ID/VERSION, got %q", place)
	}
	return e, err
}
