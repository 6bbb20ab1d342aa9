package dispatcher

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/dispatch"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/listed.sql
	listedSQL string
	//go:embed sql/unlisted.sql
	unlistedSQL string
	//go:embed sql/heads.sql
	headsSQL string
)

const (
	// unlistedPage is how many events after the list one statement reads.
	unlistedPage = 20_000
	// readRetry is the pause after a read that has failed.
	readRetry = 100 * time.Millisecond
)

// eventOf returns an event for the state machine. It reports false if the event does not affect a dispatcher.
func eventOf(e *ledger.Event) (dispatch.Event, bool) {
	d := dispatch.Event{Author: e.Actor, Task: dispatch.Task{
		Key: e.Key, Version: e.Version, Attempt: e.Attempt, Shard: e.Shard, Priority: e.Priority, Position: e.Position,
		Partition: e.Partition, OrderKey: e.OrderKey,
	}, IsStart: e.Type == ledger.EventStarted, RecordedAt: e.RecordedAt}
	switch e.Type.State() {
	case ledger.StateNone:
		return d, false
	case ledger.StateAvailable:
		d.Change = dispatch.Available
		if e.HasArgs() && len(e.Data) <= maxContent {
			d.Content = contentOf(e)
		}
	case ledger.StateRunning:
		d.Change, d.Actor = dispatch.Begun, e.Actor
	default:
		d.Change = dispatch.Ended
	}
	return d, true
}

// contentOf returns the content of the event that enqueued a task; nil if the worker must read it.
func contentOf(e *ledger.Event) []byte {
	args, err := e.Payload()
	if err != nil {
		return nil
	}
	c := dispatch.Content{Type: e.Type, RecordedAt: e.RecordedAt, Args: args}
	if len(e.Meta) > 0 {
		c.Traceparent, c.Tracestate = stream.TraceIn(e.Meta)
		c.Envelope, c.FinishBy = stream.BesideArgs(e.Meta)
	}
	text, err := c.MarshalBinary()
	if err != nil {
		panic(fmt.Sprintf("a content cannot be encoded: %v", err))
	}
	if len(text) > 2*maxContent { // by its envelope
		return nil
	}
	return text
}

// readTasks carries out the reads that the state machine wants.
func (o *office) readTasks(ctx context.Context) error {
	if err := o.readPermits(ctx); err != nil {
		return err
	}
	var searches []dispatch.Search
	var reads []dispatch.Read
	var unverified []ledger.Key
	o.locked(func() {
		searches, reads, unverified = o.machine.Searches(), o.machine.Reads(), o.machine.Unverified()
	})
	if len(searches)+len(reads) > 0 {
		found, answers, err := o.readOn(ctx, searches, reads)
		o.locked(func() {
			for i, s := range searches {
				if err != nil {
					o.machine.TakeSearch(s, dispatch.Found{}, true)
				} else {
					o.machine.TakeSearch(s, found[i], false)
				}
			}
			for i, r := range reads {
				if err != nil {
					o.machine.TakeRead(r, nil, 0, false)
				} else {
					o.machine.TakeRead(r, answers[i].tasks, answers[i].through, answers[i].isEnd)
				}
			}
			o.match()
		})
		if err != nil {
			return o.retry(ctx, err)
		}
	}
	if len(unverified) > 0 {
		heads, err := o.heads(ctx, unverified)
		if err != nil {
			return err // the machine asks once: begin again
		}
		byKey := make(map[ledger.Key]*head, len(heads))
		for i := range heads {
			byKey[heads[i].Key] = &heads[i]
		}
		o.locked(func() {
			for _, k := range unverified {
				switch h := byKey[k]; {
				case h == nil:
					o.machine.Verify(k, 0, nil)
				case h.isUnfinished:
					o.machine.Verify(k, h.Version, &h.Task)
				default:
					o.machine.Verify(k, h.Version, nil)
				}
			}
			o.match() // for further ones
		})
	}
	return nil
}

// retry logs an error of the database and waits, unless it is final.
func (o *office) retry(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	o.config.Logger.WarnContext(ctx, "cannot read available tasks; retrying", "error", err, "retry_in", readRetry)
	if err := loop.Sleep(ctx, readRetry); err != nil {
		return err
	}
	o.reads.ask()
	return nil
}

// answer is the answer to a read.
type answer struct {
	tasks   []dispatch.Task
	through ledger.Position
	isEnd   bool
}

// availableTask is a task that became available at a position.
type availableTask struct {
	key      ledger.Key
	position ledger.Position
	read     int // the index of the read that has found it
}

// head is the last event of a task.
type head struct {
	dispatch.Task

	isUnfinished bool // it is available or has begun
}

// lane is a kind, a priority and a partition.
type lane struct {
	kind      ledger.Kind
	priority  ledger.Priority
	partition string
}

// unlisted are the tasks that became available by the events after the list.
type unlisted struct {
	reached ledger.Position // of the last event that was read
	isWhole bool            // no events follow it
	tasks   map[lane][]availableTask
}

// readOn reads the next tasks of lanes, and searches the partitions of kinds and priorities: in the list of unfinished
// tasks, and then in the events after its place. Both are in the order in which tasks begin, and each may be cut. Tasks
// after the first cut are read next time.
func (o *office) readOn(ctx context.Context, searches []dispatch.Search, reads []dispatch.Read) (
	found []dispatch.Found, answers []answer, err error) {
	place, found, listed, err := o.listed(ctx, searches, reads)
	if err != nil {
		return nil, nil, err
	}
	u, err := o.unlisted(ctx, place, searches, reads)
	if err != nil {
		return nil, nil, err
	}
	for i, s := range searches {
		found[i].Reached, found[i].IsWhole = u.reached, u.isWhole
		for l := range u.tasks {
			if l.kind == s.Kind && l.priority == s.Priority && l.partition != "" {
				found[i].Unlisted = append(found[i].Unlisted, l.partition)
			}
		}
	}
	answers, err = o.answers(ctx, reads, listed, u)
	return found, answers, err
}

// answers returns the answers to reads. It reads the heads of the tasks.
func (o *office) answers(ctx context.Context, reads []dispatch.Read, listed [][]availableTask, u unlisted) (
	[]answer, error) {
	answers := make([]answer, len(reads))
	var keys []ledger.Key
	found := make(map[ledger.Key]availableTask)
	for i, r := range reads {
		a := &answers[i]
		rows := listed[i]
		a.isEnd, a.through = true, ledger.Position(1<<63-1)
		if len(rows) == r.Limit {
			a.isEnd, a.through = false, rows[len(rows)-1].position
		}
		if !u.isWhole && u.reached < a.through {
			a.isEnd, a.through = false, max(u.reached, r.After)
		}
		last := r.After
		for _, f := range slices.Concat(rows, u.tasks[lane{r.Kind, r.Priority, r.Partition}]) {
			if f.position <= r.After || f.position > a.through {
				continue
			}
			before, isKnown := found[f.key]
			if !isKnown {
				keys = append(keys, f.key)
			}
			if f.position > before.position { // another lane may have it at an earlier position
				f.read = i
				found[f.key] = f
			}
			last = max(last, f.position)
		}
		if a.isEnd {
			a.through = last
		}
	}
	heads, err := o.heads(ctx, keys)
	if err != nil {
		return nil, err
	}
	for _, h := range heads {
		if h.isUnfinished && o.only.Has(h.Key) {
			f := found[h.Key]
			h.Position = f.position
			answers[f.read].tasks = append(answers[f.read].tasks, h.Task)
		}
	}
	for _, a := range answers {
		slices.SortFunc(a.tasks, func(x, y dispatch.Task) int { return cmp.Compare(x.Position, y.Position) })
	}
	return answers, nil
}

// listed reads the list of unfinished tasks, and its place. It returns the partitions that each search has found in it,
// and the tasks of each read.
func (o *office) listed(ctx context.Context, searches []dispatch.Search, reads []dispatch.Read) (
	place feed.Place, found []dispatch.Found, tasks [][]availableTask, err error) {
	var r, s struct{ kinds, priorities, partitions, afters, limits pgarray.Builder }
	for _, one := range reads {
		r.kinds.Add(string(one.Kind))
		r.priorities.AddInt(int64(one.Priority))
		r.partitions.Add(one.Partition)
		r.afters.AddInt(int64(one.After))
		r.limits.AddInt(int64(one.Limit))
	}
	for _, one := range searches {
		s.kinds.Add(string(one.Kind))
		s.priorities.AddInt(int64(one.Priority))
		s.partitions.Add(one.Partition)
		s.limits.AddInt(int64(one.Limit))
	}
	rows, err := o.config.DB.Query(ctx, listedSQL, r.kinds.String(), r.priorities.String(), r.partitions.String(),
		r.afters.String(), r.limits.String(), s.kinds.String(), s.priorities.String(), s.partitions.String(),
		s.limits.String())
	if err != nil {
		return place, nil, nil, pgerr.Explain("read unfinished tasks", err)
	}
	found, tasks = make([]dispatch.Found, len(searches)), make([][]availableTask, len(reads))
	var at, text string
	var n, position int64
	_, err = pgx.ForEachRow(rows, []any{&at, &n, &text, &position}, func() error {
		switch {
		case n > 0:
			key := ledger.Key{Kind: reads[n-1].Kind, BizID: ledger.BizID(text)}
			tasks[n-1] = append(tasks[n-1], availableTask{key: key, position: ledger.Position(position)})
		case n < 0:
			found[-n-1].Listed = append(found[-n-1].Listed, text)
		}
		return nil
	})
	if err != nil {
		return place, nil, nil, pgerr.Explain("read unfinished tasks", err)
	}
	for i := range found {
		found[i].IsEnd = len(found[i].Listed) < searches[i].Limit
	}
	if at == "" {
		return feed.Place{Window: feed.Window{Seen: feed.Beginning()}}, found, tasks, nil
	}
	if err := json.Unmarshal([]byte(at), &place); err != nil {
		return place, nil, nil, &ledger.CorruptError{What: "place of the list of unfinished tasks", Err: err}
	}
	return place, found, tasks, nil
}

// level is a kind and a priority.
type level struct {
	kind     ledger.Kind
	priority ledger.Priority
}

// unlisted reads the events after the place of the list that made tasks of the requests' kinds available. Reads of
// priorities without tasks, and searches, are often ahead of other reads: a search needs only tasks with partitions.
func (o *office) unlisted(ctx context.Context, place feed.Place, searches []dispatch.Search, reads []dispatch.Read) (
	u unlisted, err error) {
	after := ledger.Position(math.MaxInt64)
	wanted := map[level]ledger.Position{}
	for _, s := range searches {
		after = min(after, s.After)
		wanted[level{s.Kind, s.Priority}] = math.MaxInt64
	}
	for _, r := range reads {
		after = min(after, r.After)
		of := level{r.Kind, r.Priority}
		before, isKnown := wanted[of]
		if !isKnown {
			before = math.MaxInt64
		}
		wanted[of] = min(before, r.After)
	}
	var kinds, priorities, afters pgarray.Builder
	for of, from := range wanted {
		kinds.Add(string(of.kind))
		priorities.AddInt(int64(of.priority))
		afters.AddInt(int64(from))
	}
	rows, err := o.config.DB.Query(ctx, unlistedSQL, place.Seen.Snapshot, int64(place.Seen.Top), place.Seen.Bound,
		int64(after), int64(unlistedPage), kinds.String(), priorities.String(), afters.String())
	if err != nil {
		return u, pgerr.Explain("read available tasks", err)
	}
	u.tasks = map[lane][]availableTask{}
	var events int64
	var f availableTask
	var p ledger.Priority
	var partition pgquery.Repeated
	_, err = pgx.ForEachRow(rows, []any{&events, (*int64)(&u.reached), (*pgquery.Repeated)(&f.key.Kind), (*int)(&p),
		&partition, (*string)(&f.key.BizID), (*int64)(&f.position)}, func() error {
		if f.key.Kind != "" {
			of := lane{f.key.Kind, p.Level(), string(partition)}
			u.tasks[of] = append(u.tasks[of], f)
		}
		return nil
	})
	u.isWhole = events < unlistedPage
	return u, pgerr.Explain("read available tasks", err)
}

// heads reads the last events of tasks. Tasks that do not exist are left out, and those whose keys were archived, which
// it discards.
func (o *office) heads(ctx context.Context, keys []ledger.Key) ([]head, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	var kinds, ids pgarray.Builder
	for _, k := range keys {
		kinds.Add(string(k.Kind))
		ids.Add(string(k.BizID))
	}
	rows, err := o.config.DB.Query(ctx, headsSQL, kinds.String(), ids.String(), int64(maxContent))
	if err != nil {
		return nil, pgerr.Explain("read the heads of tasks", err)
	}
	heads := make([]head, 0, len(keys))
	var repeated []ledger.Key
	var h headRow
	var isRepeated bool
	_, err = pgx.ForEachRow(rows, append(h.columns(), &isRepeated), func() error {
		if isRepeated {
			repeated = append(repeated, h.Key)
		} else {
			heads = append(heads, h.head())
		}
		return nil
	})
	if err != nil {
		return nil, pgerr.Explain("read the heads of tasks", err)
	}
	_, err = duplicates(ctx, o.config.DB, repeated)
	return heads, err
}

// headRow is a row of heads.sql.
type headRow struct {
	ledger.Event

	recorded int64
	data     *string
	meta     string
}

// columns returns the places into which a row is scanned.
func (r *headRow) columns() []any {
	return []any{(*pgquery.Repeated)(&r.Kind), (*string)(&r.BizID), (*int32)(&r.Version), (*pgquery.Repeated)(&r.Type),
		(*int32)(&r.Attempt), (*int)(&r.Shard), (*int)(&r.Priority), (*int64)(&r.Position),
		(*pgquery.Repeated)(&r.Partition), (*pgquery.Repeated)(&r.OrderKey), &r.Actor, &r.recorded, &r.data, &r.meta}
}

// head returns the head of the row that was scanned last.
func (r *headRow) head() head {
	h := head{Task: dispatch.Task{
		Key: r.Key, Version: r.Version, Attempt: r.Attempt, Shard: r.Shard, Priority: r.Priority, Position: r.Position,
		Partition: r.Partition, OrderKey: r.OrderKey,
	}}
	switch r.Type.State() {
	case ledger.StateAvailable:
		h.isUnfinished = true
		if r.recorded != 0 {
			e := r.Event
			e.RecordedAt, e.Data, e.Meta = time.UnixMicro(r.recorded).UTC(), nil, json.RawMessage(r.meta)
			if r.data != nil {
				e.Data = json.RawMessage(*r.data)
			}
			h.Content = contentOf(&e)
		}
	case ledger.StateRunning:
		h.isUnfinished, h.Actor = true, r.Actor
	default:
	}
	return h
}
