package api

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/kinds_recorded.sql
	kindsRecordedSQL string
	//go:embed sql/kinds_counted.sql
	kindsCountedSQL string
)

// codeForbiddenTable is the SQLSTATE of a statement on a table that the login may not read.
const codeForbiddenTable = "42501"

const (
	// kindsAge is the least time between two reads of the kinds.
	kindsAge = time.Second
	// kindsShare is the least ratio of the time between two reads of the kinds to the duration of a read.
	kindsShare = 50
	// maxKinds bounds the kinds that are read. A ledger with more of them has no hints.
	maxKinds = 10_000
	// maxCompared bounds the unknown kinds for which similar ones are searched, between two reads, and maxComparing the
	// time that this takes: calls of all workers wait meanwhile.
	maxCompared  = 1000
	maxComparing = kindsAge / 20
	// maxSimilar bounds the similar kinds of a hint.
	maxSimilar = 3
	// hintWait is how long the first call of a session waits for tasks if it names an unknown kind: the worker gets the
	// hint then, from a read during its call. Kinds are not registered, and a worker may start before its first task is
	// enqueued.
	hintWait = kindsAge + kindsAge/2
)

// kindNames contains the kinds that have or had tasks. It reads them only for kinds that it does not contain, so that
// workers of kinds with tasks cost no statement. It is safe for concurrent use.
type kindNames struct {
	read   func(context.Context) ([]ledger.Kind, error)
	now    func() time.Time
	logger *slog.Logger

	mu      sync.Mutex // held while the kinds are read, so that one request reads them for all
	readAt  time.Time  // when the last read began
	next    time.Time  // of the next read
	isWhole bool       // known contains all kinds
	known   map[ledger.Kind]bool
	similar map[ledger.Kind][]ledger.Kind // to unknown kinds
	spent   time.Duration                 // on the search for them
}

func newKindNames(db ledger.DB, logger *slog.Logger) *kindNames {
	mayCount := true
	list := func(ctx context.Context, text string) ([]ledger.Kind, error) {
		rows, err := db.Query(ctx, text, maxKinds+1)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[ledger.Kind])
	}
	read := func(ctx context.Context) ([]ledger.Kind, error) {
		kinds, err := list(ctx, kindsRecordedSQL)
		if err != nil || !mayCount {
			return kinds, err
		}
		counted, err := list(ctx, kindsCountedSQL)
		if pgerr.Code(err) == codeForbiddenTable { // the role worker may read the events alone
			mayCount = false
			return kinds, nil
		}
		return append(kinds, counted...), err
	}
	return &kindNames{read: read, now: time.Now, logger: logger}
}

// unknown returns hints about kinds that never had a task, with similar kinds that the caller may use. It returns none
// if the kinds cannot be read again and were read before a time: a task may have been enqueued since.
func (n *kindNames) unknown(
	ctx context.Context, c *caller, kinds []ledger.Kind, since time.Time,
) (hints []wire.UnknownKind) {
	n.mu.Lock()
	defer n.mu.Unlock()
	isKnown := func(k ledger.Kind) bool { return n.known[k] }
	if all := !slices.ContainsFunc(kinds, func(k ledger.Kind) bool { return !isKnown(k) }); all {
		return nil
	}
	n.readAgain(ctx)
	if !n.isWhole || n.readAt.Before(since) {
		return nil
	}
	for _, k := range kinds {
		if isKnown(k) || slices.ContainsFunc(hints, func(h wire.UnknownKind) bool { return h.Kind == k }) {
			continue
		}
		hint := wire.UnknownKind{Kind: k, Detail: fmt.Sprintf("no task of kind %s has been enqueued yet", k)}
		for _, s := range n.similarTo(k) {
			if c.mayUse(s) && len(hint.Similar) < maxSimilar {
				hint.Similar = append(hint.Similar, s)
			}
		}
		if names := hint.Similar; len(names) > 0 {
			hint.Detail += fmt.Sprintf("; did you mean %s?", join(names))
		} else {
			hint.Detail += ": compare it with the name that the producer uses"
		}
		hints = append(hints, hint)
	}
	return hints
}

func join(kinds []ledger.Kind) string {
	texts := make([]string, len(kinds))
	for i, k := range kinds {
		texts[i] = string(k)
	}
	return strings.Join(texts, " or ")
}

// readAgain reads the kinds, unless they were read just now. n is locked.
func (n *kindNames) readAgain(ctx context.Context) {
	begun := n.now()
	if begun.Before(n.next) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTimeout)
	defer cancel()
	n.readAt = begun
	kinds, err := n.read(ctx)
	n.next = n.now().Add(max(kindsAge, kindsShare*n.now().Sub(begun)))
	if err != nil {
		n.logger.WarnContext(ctx, "cannot read the kinds, which hints to workers need", "error", err)
		n.isWhole = false
		return
	}
	n.known, n.similar, n.spent = make(map[ledger.Kind]bool, len(kinds)), make(map[ledger.Kind][]ledger.Kind), 0
	for _, k := range kinds {
		n.known[k] = true
	}
	n.isWhole = len(n.known) <= maxKinds
}

// similarTo returns the known kinds that a kind may be a misspelling of, the most similar first. n is locked.
func (n *kindNames) similarTo(kind ledger.Kind) []ledger.Kind {
	similar, isFound := n.similar[kind]
	if isFound || len(n.similar) >= maxCompared || n.spent >= maxComparing {
		return similar
	}
	begun := time.Now()
	defer func() { n.spent += time.Since(begun) }()
	distances := make(map[ledger.Kind]int)
	for k := range n.known {
		most := max(1, min(3, len(kind)/4, len(k)/4))
		if d := distance(kind, k, most); d <= most && !reserved.IsKind(k) {
			distances[k] = d
			similar = append(similar, k)
		}
	}
	slices.SortFunc(similar, func(a, b ledger.Kind) int {
		return cmp.Or(cmp.Compare(distances[a], distances[b]), cmp.Compare(a, b))
	})
	n.similar[kind] = similar
	return similar
}

var separators = strings.NewReplacer("-", ".", "_", ".")

// plain returns a kind in lower case and with one separator: people confuse these.
func plain(k ledger.Kind) string { return separators.Replace(strings.ToLower(string(k))) }

// distance returns how many bytes must be inserted, removed, replaced or exchanged with their neighbor to make one kind
// of another, without regard to case and separators. If these are more than most, it returns any larger number, and
// compares little of the kinds.
func distance(one, other ledger.Kind, most int) int {
	tooMany := most + 1
	if max(len(one), len(other))-min(len(one), len(other)) > most {
		return tooMany
	}
	a, b := plain(one), plain(other)
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		from, to := max(1, i-most), min(len(b), i+most) // other bytes are too far apart
		row[from-1] = tooMany
		if from == 1 {
			row[0] = i
		}
		least := row[from-1]
		for j := from; j <= to; j++ {
			replaced, removed := last[j-1], tooMany
			if a[i-1] != b[j-1] {
				replaced++
			}
			if j < i+most {
				removed = last[j] + 1
			}
			row[j] = min(replaced, removed, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			least = min(least, row[j])
		}
		if least > most { // it does not become less, nor by an exchange
			return tooMany
		}
	}
	return row[len(b)]
}
