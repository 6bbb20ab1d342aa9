package outbox

import (
	"context"
	_ "embed"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

//go:embed sql/followed.sql
var followedSQL string

const (
	// waitingShare of the stream's limit is for messages that wait for workers: one part in waitingShare.
	waitingShare = 2
	// unservedShare of the limit is for those of them that no worker asks for: one part in unservedShare.
	unservedShare = 8
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
// A kind may use as much as is left of the share of all: one kind half of it, and n kinds one part in n+1 each. Kinds
// without workers have a smaller share. See A. Choudhury and E. Hahne, Dynamic Queue Length Thresholds for
// Shared-Memory Packet Switches, 1998.
func (s backlog) withholdLargest(ctx context.Context, d *demand) {
	if s.state.limit() == 0 {
		return
	}
	served, unserved := s.allowance(d), s.unservedAllowance(d)
	var kinds, waiting int64
	var largest ledger.Kind
	for name, k := range d.kinds {
		allowance := served
		if k.served == 0 {
			allowance = unserved
		}
		rest := ledger.AllShards &^ s.mark.Withheld.shards(name)
		if rest == 0 || k.bytesOf(rest) <= allowance {
			continue
		}
		s.withhold(name, rest)
		kinds, waiting = kinds+1, waiting+k.all()
		if largest == "" || k.bytes() > d.kinds[largest].bytes() {
			largest = name
		}
	}
	if kinds == 0 {
		return
	}
	s.refillTimer.Reset(0)
	s.relay.config.Logger.WarnContext(ctx, "too many tasks wait for workers; more follow when these have begun",
		"kind", string(largest), "kinds", kinds, "waiting", waiting)
}

// withhold withholds shards of a kind that are not withheld yet, from where all its work messages are published.
func (s backlog) withhold(kind ledger.Kind, shards ledger.ShardSet) {
	if s.mark.Withheld == nil {
		s.mark.Withheld = new(withheld)
	}
	at := s.published
	if s.mark.Owed.owesWork() {
		at = s.mark.Owed.next()
	}
	s.mark.Withheld.set(kind, shards, at)
}

// allowance returns how many bytes of messages of a kind with workers may wait: what is free of the share of all.
func (s backlog) allowance(d *demand) int64 {
	return max(s.state.limit()/waitingShare-d.bytes, smallestShare(s.state.limit(), len(d.kinds)))
}

// unservedAllowance returns how many bytes of messages of a kind without workers may wait.
func (s backlog) unservedAllowance(d *demand) int64 {
	return max(s.freeOfUnserved(d), smallestShare(s.state.limit(), len(d.kinds)))
}

// freeOfUnserved returns how many bytes of the share of kinds without workers are free; less than 0 if they use more.
func (s backlog) freeOfUnserved(d *demand) int64 {
	return min(s.state.limit()/waitingShare-d.bytes, s.state.limit()/unservedShare-d.unservedBytes)
}

// smallestShare returns how many bytes of a stream one more kind may use in any case, beside some others: one part in
// 72 at first, one in 256 with 16 kinds. The sum over any number of kinds is less than a quarter of the stream.
func smallestShare(limit int64, kinds int) int64 {
	n := int64(kinds) + 16
	return 4 * (limit / n) / n
}

// reached is how far a session had come with withheld kinds. A cursor row has it as of the last page.
type reached struct {
	generation int
	published  feed.Place
	withheld   *withheld
	owed       *owed
	accounted  uint64 // message up to which the stream has this
}

// isOfWithheldKind reports whether the event of a message is of a withheld kind.
func (s backlog) isOfWithheldKind(m message) bool {
	_, is := s.mark.Withheld.at(m.event.Kind, m.event.Shard)
	return is
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
	size = s.state.bytes
	for _, m := range page {
		if !m.event.Type.WakesWorkers() || !s.isOfWithheldKind(m) {
			size += m.size
		}
	}
	s.assessAt = size + s.state.unassessed(size)
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
	if s.mark.Withheld.IsZero() {
		return never, nil
	}
	if err := s.check(ctx); err != nil {
		return 0, err
	}
	d, err := s.readDemand(ctx, nil)
	if err != nil {
		return 0, err
	}
	if err := s.passFinished(ctx, d); err != nil {
		return 0, err
	}
	isRefilled := false
	for _, name := range slices.Collect(maps.Keys(s.mark.Withheld.all())) {
		if k := d.kinds[name]; k.served != 0 {
			hasRoom, err := s.refillServed(ctx, d, name, k)
			if err != nil {
				return 0, err
			}
			isRefilled = isRefilled || hasRoom
		}
	}
	hasRoom, err := s.refillUnserved(ctx, d)
	if err != nil {
		return 0, err
	}
	if isRefilled || hasRoom {
		s.refillDelay.Reset()
		return 0, nil
	}
	return s.refillDelay.Next(), nil
}

// refillServed refills the parts of a kind that have workers, the oldest first. If too many messages wait in shards
// without workers, these become a part of their own, which waits for their workers.
func (s backlog) refillServed(
	ctx context.Context, d *demand, name ledger.Kind, k *kindDemand,
) (isRefilled bool, err error) {
	for _, p := range slices.Clone(s.mark.Withheld.all()[name]) {
		allowance := s.allowance(d)
		if p.Shards&k.served == 0 {
			continue
		}
		if without := p.Shards &^ k.served; without != 0 && k.unserved*k.size > allowance {
			p.Shards &= k.served
			s.mark.Withheld.split(name, p.Shards)
		}
		n := k.missing(allowance)
		if n == 0 {
			continue
		}
		n = min(n, stepSize, max(s.state.limit()/growthShare/k.size, 1))
		choice := feed.Choice{Limit: int(n), Read: min(int(n)*(1+len(d.kinds)), stepSize)}
		hasRoom, err := s.refill(ctx, d, map[ledger.Kind]ledger.ShardSet{name: p.Shards}, p.At, int(n), choice)
		if err != nil {
			return false, err
		}
		isRefilled = isRefilled || hasRoom
	}
	return isRefilled, nil
}

// refillUnserved refills the kinds without workers that have been withheld for the longest time: together, since there
// may be thousands. They leave half of what is free to others. While work messages are owed after a loss, they wait:
// any kind may have workers.
func (s backlog) refillUnserved(ctx context.Context, d *demand) (hasRoom bool, err error) {
	free := s.freeOfUnserved(d)
	if s.mark.Owed.owesWork() || free < s.state.limit()/growthShare {
		return false, nil
	}
	parts := make(map[ledger.Kind]ledger.ShardSet)
	var from feed.Place
	var size int64
	for name, all := range s.mark.Withheld.all() {
		k := d.kinds[name]
		if k.bytes()+k.size > free {
			continue
		}
		for _, p := range all {
			if p.Shards&k.served != 0 {
				continue
			}
			if len(parts) == 0 || compare(p.At, from) < 0 {
				clear(parts)
				from, size = p.At, 0
			}
			if p.At == from {
				parts[name], size = p.Shards, max(size, k.size)
			}
		}
	}
	if len(parts) == 0 {
		return false, nil
	}
	n := min(max(free/2/size, 1), stepSize)
	// Most of these tasks may have finished without workers: then many events are passed at a time.
	return s.refill(ctx, d, parts, from, int(n), feed.Choice{Limit: stepSize, Read: stepSize})
}

// refill publishes at most n withheld messages of shards of kinds, chosen among the events of pages that were published
// otherwise, and adds them to the demand. All are withheld from the same place on, and not any more if these were the
// last messages. Without room for one message it returns false.
func (s backlog) refill(
	ctx context.Context, d *demand, parts map[ledger.Kind]ledger.ShardSet, from feed.Place, n int, choice feed.Choice,
) (hasRoom bool, err error) {
	choice.Wants = func(e ledger.Event) bool { return parts[e.Kind].Has(e.Shard) && e.Type.WakesWorkers() }
	chosen, at, err := feed.Between(ctx, s.relay.config.DB, from, s.published, choice)
	if err != nil {
		return false, pgerr.Explain("find withheld events", err)
	}
	next, err := s.withoutFollowed(ctx, chosen)
	if err != nil {
		return false, err
	}
	if len(next) > n {
		choice.Limit = slices.IndexFunc(chosen, func(e ledger.Event) bool { return e.Position == next[n].Position })
		return s.refill(ctx, d, parts, from, n, choice)
	}
	b, err := s.pages.prepare(ctx, next)
	if err != nil {
		return false, err
	}
	if len(b.events) < len(next) {
		choice.Limit = len(b.events)
		return s.refill(ctx, d, parts, from, n, choice)
	}
	s.relay.sizes.note(b.messages, s.state.limit())
	switch has, err := s.hasRoom(ctx, b.messages); {
	case err != nil:
		return false, err
	case !has && len(b.messages) > 1:
		choice.Limit = len(b.messages) / 2
		return s.refill(ctx, d, parts, from, n, choice)
	case !has && (s.state.isNearlyFull(0) || s.state.overflows(b.messages[0].size)):
		return false, nil
	}
	fault.Point(FaultRefill)
	if err := s.parkAll(ctx, b.rejects); err != nil {
		return false, err
	}
	if err := s.publish(ctx, b.messages); err != nil {
		return false, err
	}
	fault.Point(FaultRefilled)
	d.notePublished(b.messages)
	s.refills++
	s.setAccounted()
	for kind, shards := range parts {
		if at == s.published {
			s.mark.Withheld.release(kind, shards)
		} else {
			s.mark.Withheld.set(kind, shards, at)
		}
	}
	if at == s.published {
		s.relay.config.Logger.InfoContext(ctx, "all waiting tasks are on the stream", "kinds", len(parts))
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
	return slices.DeleteFunc(slices.Clone(events), func(e ledger.Event) bool { return isFollowed[e.Position] }), nil
}
