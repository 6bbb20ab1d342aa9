package outbox

import (
	"context"
	_ "embed"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

var (
	//go:embed sql/followed.sql
	followedSQL string
	//go:embed sql/overtaken.sql
	overtakenSQL string
)

const (
	// waitingShare of the stream's limit is for messages that wait for workers: one part in waitingShare.
	waitingShare = 2
	// maxRefill is how many messages of a withheld kind may wait for its workers.
	maxRefill = 20_000
	// minRefill is how many of one with workers may wait in any case: they make room again.
	minRefill = 16

	// growthShare: the demand is read when the stream has grown by one part in growthShare of the limit.
	growthShare = 16
	// While a kind is withheld the demand is read again after minRefillDelay, and after up to maxRefillDelay while no
	// kind needs messages.
	minRefillDelay = 100 * time.Millisecond
	maxRefillDelay = time.Second
	never          = time.Hour // withholding a kind sets the timer
)

// backlog is the part of a session that withholds kinds of which too many tasks wait.
type backlog struct{ *session }

// withholdLargest withholds the kinds of which too many messages wait: their waking events in later pages are not
// published. They follow in the order of the feed when the workers of the kind have room, see refill, or before the
// next event of their task, see admit. So workers and subscribers receive each event once, and in order.
//
// A kind may use as much as is left of the share of all: one kind half of it, and n kinds one part in n+1 each. See
// A. Choudhury and E. Hahne, Dynamic Queue Length Thresholds for Shared-Memory Packet Switches, 1998.
func (s backlog) withholdLargest(ctx context.Context, d *demand) {
	if s.state.limit() == 0 {
		return
	}
	at := s.published
	if s.mark.Owed != nil && s.mark.Owed.next() != s.mark.Owed.To {
		at = s.mark.Owed.next()
	}
	for name, k := range d.kinds {
		if _, already := s.mark.Withheld[name]; already || k.bytes() <= s.allowance(d) {
			continue
		}
		if s.mark.Withheld == nil {
			s.mark.Withheld = make(map[ledger.Kind]feed.Place)
		}
		s.mark.Withheld[name] = at
		s.refillTimer.Reset(0)
		s.relay.config.Logger.WarnContext(ctx, "too many tasks wait for workers; more follow when these have begun",
			"kind", string(name), "waiting", k.all(), "bytes", k.bytes())
	}
}

// allowance returns how many bytes of messages of a kind may wait.
func (s backlog) allowance(d *demand) int64 {
	limit := s.state.limit()
	free := limit / waitingShare
	for _, k := range d.kinds {
		free -= k.bytes()
	}
	return max(free, smallestShare(limit, len(d.kinds)))
}

// smallestShare returns how many bytes of a stream one more kind may use in any case, beside some others: one part in
// 72 at first, one in 256 with 16 kinds. The sum over any number of kinds is less than a quarter of the stream.
func smallestShare(limit int64, kinds int) int64 {
	n := int64(kinds) + 16
	return 4 * (limit / n) / n
}

// admit returns the messages of a page that are published now. A withheld event is published before the next event of
// its task.
func (s backlog) admit(ctx context.Context, messages []message) ([]message, error) {
	if len(s.mark.Withheld) == 0 {
		return messages, nil
	}
	withheld := make(map[taskVersion]int) // indexes in messages
	isAdmitted := make([]bool, len(messages))
	overtaking := make(map[ledger.Kind][]ledger.Event)
	for i, m := range messages {
		isOfWithheldKind := s.isOfWithheldKind(m)
		if at, ok := withheld[taskVersion{m.event.Key, m.event.Version - 1}]; ok {
			isAdmitted[at] = true
		} else if isOfWithheldKind && m.event.Version > 1 {
			overtaking[m.event.Kind] = append(overtaking[m.event.Kind], m.event)
		}
		if isOfWithheldKind && m.event.Type.WakesWorkers() {
			withheld[taskVersion{m.event.Key, m.event.Version}] = i
		} else {
			isAdmitted[i] = true
		}
	}
	var admitted []message
	for kind, events := range overtaking {
		before, err := s.overtaken(ctx, kind, events)
		if err != nil {
			return nil, err
		}
		admitted = append(admitted, before...)
	}
	for i, m := range messages {
		if isAdmitted[i] {
			admitted = append(admitted, m)
		}
	}
	return admitted, nil
}

// reached is how far a session had come with withheld kinds. A cursor row has it as of the last page.
type reached struct {
	generation int
	published  feed.Place
	withheld   map[ledger.Kind]feed.Place
	owed       *owed
}

// isOfWithheldKind reports whether the event of a message is of a withheld kind.
func (s backlog) isOfWithheldKind(m message) bool {
	_, withheld := s.mark.Withheld[m.event.Kind]
	return withheld
}

// taskVersion identifies an event.
type taskVersion struct {
	key     ledger.Key
	version ledger.Version
}

// overtaken returns the messages of withheld events of a kind that are the last ones before events of their tasks.
func (s backlog) overtaken(ctx context.Context, kind ledger.Kind, events []ledger.Event) ([]message, error) {
	var ids, versions pgarray.Builder
	for _, e := range events {
		ids.Add(string(e.BizID))
		versions.AddInt(int64(e.Version) - 1)
	}
	args := append([]any{string(kind), ids.String(), versions.String()}, s.mark.Withheld[kind].DeliveredArgs()...)
	rows, err := s.relay.config.DB.Query(ctx, overtakenSQL, args...)
	if err != nil {
		return nil, pgerr.Explain("find overtaken events", err)
	}
	messages, err := s.scanWork(ctx, rows)
	return messages, pgerr.Explain("find overtaken events", err)
}

// assess withholds the largest kinds if the stream has grown much since that was done, or would by a page.
func (s backlog) assess(ctx context.Context, page []message) error {
	limit := s.state.limit()
	size := s.state.bytes
	for _, m := range page {
		size += m.size
	}
	if limit == 0 || size <= s.assessAt {
		return nil
	}
	if err := s.check(ctx); err != nil {
		return err
	}
	d, err := s.readDemand(ctx, page)
	if err != nil {
		return err
	}
	s.withholdLargest(ctx, d)
	s.assessAt = size + limit/growthShare
	return nil
}

// refillNow refills withheld kinds and sets the timer for the next time.
func (s backlog) refillNow(ctx context.Context) error {
	next, err := s.refillAll(ctx)
	s.refillTimer.Reset(next)
	return err
}

// refillAll refills the withheld kinds of which few messages wait. It returns when to do so again.
func (s backlog) refillAll(ctx context.Context) (next time.Duration, err error) {
	if len(s.mark.Withheld) == 0 {
		return never, nil
	}
	if err := s.check(ctx); err != nil {
		return 0, err
	}
	d, err := s.readDemand(ctx, nil)
	if err != nil {
		return 0, err
	}
	refilled := false
	for name := range s.mark.Withheld {
		k := d.kinds[name]
		n := k.missing(s.allowance(d))
		if n == 0 {
			continue
		}
		n = min(n, stream.MaxPage, max(s.state.limit()/growthShare/k.size, 1))
		choice := feed.Choice{Limit: int(n), Read: min(int(n)*(1+len(d.kinds)), stream.MaxPage)}
		hasRoom, err := s.refill(ctx, name, choice)
		if err != nil {
			return 0, err
		}
		refilled = refilled || hasRoom
	}
	if refilled {
		s.refillDelay.Reset()
		return 0, nil
	}
	return s.refillDelay.Next(), nil
}

// refill publishes withheld messages of a kind, chosen among the events of pages that were published otherwise. The
// kind is not withheld any more if these were the last ones. Without room for one message it returns false.
func (s backlog) refill(ctx context.Context, kind ledger.Kind, choice feed.Choice) (hasRoom bool, err error) {
	choice.Wants = func(e ledger.Event) bool { return e.Kind == kind && e.Type.WakesWorkers() }
	next, at, err := feed.Between(ctx, s.relay.config.DB, s.mark.Withheld[kind], s.published, choice)
	if err != nil {
		return false, pgerr.Explain("find withheld events", err)
	}
	if next, err = s.withoutFollowed(ctx, next); err != nil {
		return false, err
	}
	b, err := s.encoder.prepare(ctx, feed.Page{Events: next})
	if err != nil {
		return false, err
	}
	s.relay.sizes.note(b.messages, s.state.limit())
	switch has, err := s.hasRoom(ctx, b.messages); {
	case err != nil:
		return false, err
	case !has && len(b.messages) > 1:
		choice.Limit = len(b.messages) / 2
		return s.refill(ctx, kind, choice)
	case !has && (s.state.isNearlyFull(0) || s.state.overflows(b.messages[0].size)):
		return false, nil
	}
	fault.Point(FaultRefill)
	if err := s.publishBatch(ctx, b.messages, b.rejects); err != nil {
		return false, err
	}
	fault.Point(FaultRefilled)
	s.mark.Withheld[kind] = at
	if at == s.published {
		delete(s.mark.Withheld, kind)
		s.relay.config.Logger.InfoContext(ctx, "all waiting tasks are on the stream", "kind", string(kind))
	}
	return true, nil
}

// withoutFollowed returns the events whose next event was not delivered. The others were published before it.
func (s backlog) withoutFollowed(ctx context.Context, events []ledger.Event) ([]ledger.Event, error) {
	if len(events) == 0 {
		return nil, nil
	}
	var kinds, ids, versions pgarray.Builder
	for _, e := range events {
		kinds.Add(string(e.Kind))
		ids.Add(string(e.BizID))
		versions.AddInt(int64(e.Version))
	}
	args := append([]any{kinds.String(), ids.String(), versions.String()}, s.published.DeliveredArgs()...)
	rows, err := s.relay.config.DB.Query(ctx, followedSQL, args...)
	if err != nil {
		return nil, pgerr.Explain("find followed events", err)
	}
	followed, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, pgerr.Explain("find followed events", err)
	}
	isFollowed := make(map[ledger.Position]bool, len(followed))
	for _, i := range followed {
		isFollowed[events[i-1].Position] = true
	}
	return slices.DeleteFunc(events, func(e ledger.Event) bool { return isFollowed[e.Position] }), nil
}
