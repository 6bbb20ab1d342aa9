package seal

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/events_between.sql
	eventsBetweenSQL string
	//go:embed sql/place.sql
	placeSQL string
	//go:embed sql/inserted.sql
	insertedSQL string
	//go:embed sql/unplaced.sql
	unplacedSQL string
	//go:embed sql/snapshot.sql
	snapshotSQL string
	//go:embed sql/rows.sql
	rowsSQL string
	//go:embed sql/archived.sql
	archivedSQL string
	//go:embed sql/rest.sql
	restSQL string
)

// VerifyOptions are the options of [Verify]. Nil is the default of every field.
type VerifyOptions struct {
	// Checkpoints are the checkpoints kept outside of the database, in any order. Default: none; then only events and
	// seal are compared with each other.
	Checkpoints []Checkpoint
	// Archive reads the tiles of leaves whose rows were removed from the seal.
	Archive Archive
	// Progress is called after each batch with the number of verified events and an estimate of all. Default:
	// disabled.
	Progress func(done, total int64)
}

// Fault is a difference between the events and the seal.
type Fault struct {
	Fault    FaultType       `json:"fault"`
	Position ledger.Position `json:"position,omitempty"`
	Kind     ledger.Kind     `json:"kind,omitempty"` // unknown for a removed event
	BizID    ledger.BizID    `json:"biz_id,omitempty"`
	Version  ledger.Version  `json:"version,omitempty"`
	Leaf     int64           `json:"leaf"` // -1 for an inserted event, and for a fault of a batch
	Detail   string          `json:"detail,omitempty"`
}

// FaultType is the type of a [Fault].
type FaultType string

// The types of faults.
const (
	Changed  FaultType = "changed"  // a sealed event, or its leaf or salt
	Removed  FaultType = "removed"  // a sealed event
	Inserted FaultType = "inserted" // an event that no sealer will seal, such as one between sealed events
	Seal     FaultType = "seal"     // a batch of the table seal
)

// String returns the fault in one line.
func (f Fault) String() string {
	var text string
	switch f.Fault {
	case Seal:
		return "seal: " + f.Detail
	case Removed:
		if f.Detail != "" {
			return "removed: " + f.Detail
		}
		return fmt.Sprintf("removed: position %d, leaf %d", f.Position, f.Leaf)
	case Inserted:
		text = fmt.Sprintf("inserted: %s/%s@%d, position %d", f.Kind, f.BizID, f.Version, f.Position)
	case Changed:
		text = fmt.Sprintf("changed: %s/%s@%d, position %d, leaf %d", f.Kind, f.BizID, f.Version, f.Position, f.Leaf)
	}
	if f.Detail != "" {
		text += ": " + f.Detail
	}
	return text
}

// Comparison is the result for a checkpoint that was kept outside.
type Comparison struct {
	Checkpoint

	Problem string `json:"problem,omitempty"` // "" if the checkpoint's tree is a part of the ledger's tree
	// Unchecked is why the trees were not compared: the archive cannot be read.
	Unchecked string `json:"unchecked,omitempty"`
}

// maxFaults is the greatest number of faults that a [Report] lists.
const maxFaults = 100

// Report is the result of [Verify].
type Report struct {
	Checkpoint  Checkpoint   `json:"checkpoint"`  // of the tree that was verified
	Erased      int64        `json:"erased"`      // events whose personal data and salt are erased
	Archived    int64        `json:"archived"`    // events that the archive has removed; their leaves are compared
	Unsealed    int64        `json:"unsealed"`    // events that are not sealed yet
	Unchecked   []Range      `json:"unchecked"`   // leaves whose tiles cannot be read
	Comparisons []Comparison `json:"checkpoints"` // with each checkpoint, by size
	Faults      []Fault      `json:"faults"`      // the first maxFaults
	Faulty      int64        `json:"faulty"`      // number of all faults
}

// Range is a range of leaves that were not verified, because the archive cannot be read.
type Range struct {
	First  int64  `json:"first"`
	Last   int64  `json:"last"`
	Place  string `json:"place"` // of the archive
	Reason string `json:"reason"`
}

// String returns the range in one line.
func (r Range) String() string {
	return fmt.Sprintf("leaves %d to %d are in the archive at %s, which cannot be read: %s", r.First, r.Last, r.Place,
		r.Reason)
}

// FirstWrong returns the smallest checkpoint that does not agree, and the largest one below it, which agrees: events
// between them were changed, or the tree was. It returns nil for a missing checkpoint.
func (r Report) FirstWrong() (wrong, before *Comparison) {
	for i, c := range r.Comparisons {
		if c.Problem != "" {
			return &r.Comparisons[i], before
		}
		before = &r.Comparisons[i]
	}
	return nil, before
}

// IsValid reports whether no fault was found and all checkpoints agree. Unchecked leaves are no fault.
func (r Report) IsValid() bool {
	return r.Faulty == 0 && !slices.ContainsFunc(r.Comparisons, func(c Comparison) bool { return c.Problem != "" })
}

// Verify compares the sealed events with the seal, the seal with itself, and its tree with checkpoints that were kept
// outside; see the package comment. It changes nothing and blocks nothing: each statement is its own transaction. It
// reads all sealed events, in constant memory. It needs the role reader.
//
// Errors: an error for which IsRefusal of package ledger/feed is true, for a restored database that was not rebased;
// [*ledger.CorruptError] for a row of the seal that cannot be read.
func Verify(ctx context.Context, db ledger.DB, o *VerifyOptions) (Report, error) {
	if o == nil {
		o = &VerifyOptions{}
	}
	v := &verifier{db: db, archive: o.Archive, progress: o.Progress, kept: slices.Clone(o.Checkpoints)}
	v.report = Report{Comparisons: []Comparison{}, Faults: []Fault{}, Unchecked: []Range{}}
	slices.SortStableFunc(v.kept, func(a, b Checkpoint) int { return int(min(max(a.Size-b.Size, -1), 1)) })
	if err := v.readPlace(ctx); err != nil {
		return Report{}, err
	}
	before, err := v.readTally(ctx)
	if err != nil {
		return Report{}, err
	}
	v.archivedUntil = before.until
	last, err := readEnd(ctx, db)
	if err != nil {
		return Report{}, err
	}
	v.end.origin, v.total = last.origin, last.leaves
	if _, err := pgquery.Row(ctx, db, snapshotSQL, nil, &v.snapshot); err != nil {
		return Report{}, explain("verify", err)
	}
	// A forged batch or event may have a lower number than any true one.
	v.next = math.MinInt64
	if err := v.passCut(ctx); err != nil {
		return Report{}, err
	}
	for next, isLast := int64(math.MinInt64), false; !isLast; {
		batches, err := readBatches(ctx, db, next)
		if err != nil {
			return Report{}, err
		}
		if len(batches) == 0 {
			break
		}
		if batches[0].number > v.end.batch+1 { // its rows may have been removed since
			last := v.end.batch
			if err := v.passCut(ctx); err != nil {
				return Report{}, err
			}
			if v.end.batch > last {
				next = v.end.batch + 1
				continue
			}
		}
		for _, b := range batches {
			if err := v.verify(ctx, b); err != nil {
				return Report{}, err
			}
			next, isLast = b.number+1, b.number == math.MaxInt64
			if o.Progress != nil {
				o.Progress(v.tree.size, max(v.tree.size, last.leaves))
			}
		}
	}
	if err := v.compareTally(ctx, before); err != nil {
		return Report{}, err
	}
	return v.finish(ctx)
}

// tally is the number of sealed events that the archive has removed, and the exclusive or of their positions.
type tally struct{ events, xor, until int64 }

func (v *verifier) readTally(ctx context.Context) (t tally, err error) {
	_, err = pgquery.Row(ctx, v.db, archivedSQL, nil, &t.events, &t.xor, &t.until)
	return t, explain("read the archive", err)
}

// compareTally compares the missing events with the tally of the archive. Its batches may have removed some
// during the verification.
func (v *verifier) compareTally(ctx context.Context, before tally) error {
	after, err := v.readTally(ctx)
	if err != nil {
		return err
	}
	missing := v.archived
	isSame := before == after && !v.isBroken
	if missing.events > after.events || isSame && (missing.events != before.events || missing.xor != before.xor) {
		v.add(Fault{Fault: Removed, Leaf: -1, Detail: fmt.Sprintf("%d sealed events are missing up to position %d, "+
			"and the archive has removed %d, or others", missing.events, after.until, after.events)})
	}
	return nil
}

// verifier is a call of Verify.
type verifier struct {
	db      ledger.DB
	archive Archive
	away    error // why no tile of the archive is read any more
	cutXOR  int64 // of the positions in removed rows

	progress func(done, total int64)
	total    int64

	kept []Checkpoint    // not compared yet, by size
	end  end             // after the last batch
	next ledger.Position // after the positions of all batches

	tree     frontier // of the leaves in the seal
	isBroken bool     // a batch was missing, so the nodes of later batches are not compared
	suspects []suspect
	extra    []int64 // positions of events in no batch so far, to be looked up
	snapshot string  // of the beginning
	seen     int64   // events between positions that the snapshot sees

	archivedUntil int64 // the archive has removed no event above it, as last read
	archived      tally // the sealed events that are missing up to there

	report Report
}

// readPlace reads the sealer's place, whose transaction IDs must belong to this database.
func (v *verifier) readPlace(ctx context.Context) error {
	var isLocal, isWrittenHere bool
	var passed ledger.Position
	var origin string
	found, err := pgquery.Row(ctx, v.db, placeSQL, nil, &isLocal, &isWrittenHere, (*int64)(&passed), &origin)
	switch {
	case err != nil:
		return explain("read the sealer's cursor", err)
	case found && !isWrittenHere:
		return &feed.OriginError{Reader: feed.SealReader, Found: "unknown", Want: origin}
	case found && !isLocal:
		return &feed.OriginError{Reader: feed.SealReader, Ahead: passed, Want: origin}
	}
	return nil
}

// verify verifies the next batch.
func (v *verifier) verify(ctx context.Context, b *batch) error {
	problem := b.problem(v.end)
	if problem != "" {
		v.isBroken = true
		v.add(Fault{Fault: Seal, Leaf: -1, Detail: problem})
	}
	if err := v.compareEvents(ctx, b, b.isLate || problem != ""); err != nil {
		return err
	}
	var nodes []tlog.Hash
	for _, leaf := range b.leaves {
		if err := v.compareTree(); err != nil {
			return err
		}
		completed, err := v.tree.append(leaf)
		if err != nil {
			return err
		}
		nodes = append(nodes, completed...)
	}
	if !v.isBroken && !slices.Equal(nodes, b.nodes) {
		detail := fmt.Sprintf("the nodes of batch %d do not match its leaves", b.number)
		v.add(Fault{Fault: Seal, Leaf: -1, Detail: detail})
	}
	v.end.batch, v.end.top = b.number, max(v.end.top, b.top)
	v.end.leaves += int64(len(b.leaves))
	if b.firstLeaf >= 0 && b.firstLeaf <= maxLeaves { // so that batches after a missing batch are not faults
		v.end.leaves = b.firstLeaf + int64(len(b.leaves))
	}
	v.next = max(v.next, b.top+1)
	return nil
}

// compareEvents compares the events of a batch with its leaves. If isSparse is false, it also checks other events
// between their positions.
func (v *verifier) compareEvents(ctx context.Context, b *batch, isSparse bool) error {
	places := make(map[int64]int, len(b.positions))
	for i, p := range b.positions {
		places[p] = i
	}
	compare := func(e Event) {
		place, ok := places[int64(e.Position)]
		if !ok {
			v.extra = append(v.extra, int64(e.Position))
			return
		}
		delete(places, int64(e.Position))
		s := suspect{
			key: e.Key, version: e.Version, position: e.Position,
			leaf: b.firstLeaf + int64(place), hash: b.leaves[place],
		}
		if !v.matches(e, b.salts[place], s.hash) {
			v.suspects = append(v.suspects, s)
		}
	}
	var err error
	if isSparse {
		_, _, err = v.eachEvent(ctx, eventsSQL, []any{literal(b.positions)}, compare)
	} else {
		err = v.eachEventBetween(ctx, v.next, b.top, compare)
	}
	if err != nil {
		return err
	}
	return v.reportMissing(ctx, b, places)
}

// reportMissing reports the events of a batch that are not in the table, at positions with their places. It counts the
// events that the archive may have removed.
func (v *verifier) reportMissing(ctx context.Context, b *batch, missing map[int64]int) error {
	for place, p := range b.positions {
		if at, ok := missing[p]; !ok || at != place {
			continue
		}
		if p > v.archivedUntil { // a run of the archive may have begun since
			t, err := v.readTally(ctx)
			if err != nil {
				return err
			}
			v.archivedUntil = t.until
		}
		if p > v.archivedUntil {
			v.add(Fault{Fault: Removed, Position: ledger.Position(p), Leaf: b.firstLeaf + int64(place)})
			continue
		}
		v.archived.events++
		v.archived.xor ^= p
		v.report.Archived++
	}
	return nil
}

// matches reports whether the hash of an event with its salt equals its leaf, and counts an erased event.
func (v *verifier) matches(e Event, salt []byte, hash tlog.Hash) bool {
	leaf, err := e.leaf(salt)
	if err != nil || leaf != hash {
		return false
	}
	if len(salt) == digestBytes {
		v.report.Erased++
	}
	return true
}

// suspect is an event that differs from its leaf, unless it was erased after its salt was read.
type suspect struct {
	key      ledger.Key
	version  ledger.Version
	position ledger.Position
	leaf     int64
	hash     tlog.Hash
}

// lookUpSuspects reads each suspect with its salt in one statement, and reports the changed ones.
func (v *verifier) lookUpSuspects(ctx context.Context) error {
	for _, s := range v.suspects {
		events, err := readTask(ctx, v.db, s.key, s.version-1, 1, Checkpoint{Size: math.MaxInt64})
		if err != nil {
			return err
		}
		fault := Fault{Fault: Changed, Position: s.position, Kind: s.key.Kind, BizID: s.key.BizID, Version: s.version,
			Leaf: s.leaf}
		if len(events) > 0 && events[0].Version == s.version && events[0].Proof != nil {
			p := events[0].Proof
			if p.Leaf == s.leaf && v.matches(p.Event, p.Salt, s.hash) {
				continue
			}
			if _, err := p.Record(); err != nil {
				fault.Detail = err.Error()
			}
		}
		v.add(fault)
	}
	v.suspects = v.suspects[:0]
	return nil
}

// eventsAtOnce is how many events a statement reads: more than a batch contains.
const eventsAtOnce = 2 * batchSize

// eachEventBetween calls f with each event from one position to another, and then looks up the events that f has added
// to suspects and extra.
func (v *verifier) eachEventBetween(ctx context.Context, from, to ledger.Position, f func(Event)) error {
	for {
		args := []any{int64(from), int64(to), int64(eventsAtOnce), v.snapshot}
		n, last, err := v.eachEvent(ctx, eventsBetweenSQL, args, f)
		if err != nil || n < eventsAtOnce || last == to {
			return err
		}
		from = last + 1
	}
}

// eachEvent is eachEventBetween for the events of one query. It returns their number and the last position. It reports
// each further event of a position: an owner may have dropped the constraint.
func (v *verifier) eachEvent(
	ctx context.Context, sql string, args []any, f func(Event),
) (n int, last ledger.Position, err error) {
	rows, err := v.db.Query(ctx, sql, args...)
	if err != nil {
		return 0, 0, explain("read events", err)
	}
	defer rows.Close()
	for ; rows.Next(); n++ {
		var e Event
		columns, isSeen := e.columns(), false
		if sql == eventsBetweenSQL {
			columns = append([]any{&isSeen}, columns...)
		}
		if err := rows.Scan(columns...); err != nil {
			return 0, 0, explain("read events", err)
		}
		if isSeen {
			v.seen++
		}
		if n > 0 && e.Position == last {
			v.add(Fault{Fault: Inserted, Position: e.Position, Kind: e.Kind, BizID: e.BizID, Version: e.Version,
				Leaf: -1, Detail: "another event has this position"})
			continue
		}
		f(e)
		last = e.Position
	}
	if err := rows.Err(); err != nil {
		return 0, 0, explain("read events", err)
	}
	if err := v.lookUpSuspects(ctx); err != nil {
		return 0, 0, err
	}
	return n, last, v.lookUpExtra(ctx)
}

// lookUpExtra reports the extra events that are in no batch and that no sealer will seal: the sealer has passed them,
// or their transaction IDs were not committed. It counts other events that are in no batch: they are not sealed yet.
func (v *verifier) lookUpExtra(ctx context.Context) error {
	if len(v.extra) == 0 {
		return nil
	}
	rows, err := v.db.Query(ctx, insertedSQL, literal(v.extra))
	if err != nil {
		return explain("look up events in the seal", err)
	}
	defer rows.Close()
	v.extra = v.extra[:0]
	for rows.Next() {
		f := Fault{Fault: Inserted, Leaf: -1}
		var isInserted bool
		err := rows.Scan((*int64)(&f.Position), (*string)(&f.Kind), (*string)(&f.BizID), (*int32)(&f.Version),
			&isInserted)
		switch {
		case err != nil:
			return explain("look up events in the seal", err)
		case isInserted:
			v.add(f)
		default:
			v.report.Unsealed++
		}
	}
	return explain("look up events in the seal", rows.Err())
}

// reportUnplaced reports events without a position, at most maxFaults. No sealer reads them, but readers in SQL do.
func (v *verifier) reportUnplaced(ctx context.Context) error {
	rows, err := v.db.Query(ctx, unplacedSQL, int64(maxFaults))
	if err != nil {
		return explain("look for events without a position", err)
	}
	f := Fault{Fault: Inserted, Leaf: -1, Detail: "it has no position"}
	unplaced := int64(0)
	_, err = pgx.ForEachRow(rows, []any{(*string)(&f.Kind), (*string)(&f.BizID), (*int32)(&f.Version)}, func() error {
		v.add(f)
		unplaced++
		return nil
	})
	if err != nil {
		return explain("look for events without a position", err)
	}
	return v.countRows(ctx, unplaced)
}

// countRows reports events that the table contains and its index of positions lacks. unplaced is how many events
// without a position were found, at most maxFaults.
func (v *verifier) countRows(ctx context.Context, unplaced int64) error {
	var seen, withoutPosition, future int64
	_, err := pgquery.Row(ctx, v.db, rowsSQL, []any{v.snapshot}, &seen, &withoutPosition, &future)
	if err != nil {
		return explain("count events", err)
	}
	hidden := max(withoutPosition-unplaced, 0)
	if !v.isBroken { // a missing batch leaves a gap between the positions that were read
		hidden += max(seen-v.seen, 0)
	}
	hidden = max(hidden, future-v.report.Faulty)
	if hidden > 0 {
		v.add(Fault{Fault: Seal, Leaf: -1, Detail: fmt.Sprintf("%d events are in the table and were not found by "+
			"its index of positions: reindex table taskledger.event, and verify again", hidden)})
	}
	return nil
}

func (v *verifier) add(f Fault) {
	v.report.Faulty++
	if len(v.report.Faults) < maxFaults {
		v.report.Faults = append(v.report.Faults, f)
	}
}

// compareTree compares the tree with the kept checkpoints of its size.
func (v *verifier) compareTree() error {
	for len(v.kept) > 0 && v.kept[0].Size == v.tree.size {
		root, err := v.tree.root()
		if err != nil {
			return err
		}
		v.compareRoot(root)
	}
	return nil
}

// compareRoot compares the hash of a tree with the next kept checkpoint, which is of its size.
func (v *verifier) compareRoot(root tlog.Hash) {
	c := Comparison{Checkpoint: v.kept[0]}
	if root != c.Root {
		c.Problem = fmt.Sprintf("the first %d leaves have the hash %s", c.Size, root)
		if !c.IsOf(v.end.origin) {
			c.Problem += "; the checkpoint is one of " + c.Origin + ", this is " + v.end.origin
		}
	}
	v.report.Comparisons = append(v.report.Comparisons, c)
	v.kept = v.kept[1:]
}

// finish looks up the events above the last batch, and returns the report.
func (v *verifier) finish(ctx context.Context) (Report, error) {
	err := v.eachEventBetween(ctx, v.next, math.MaxInt64, func(e Event) {
		v.extra = append(v.extra, int64(e.Position))
	})
	if err != nil {
		return Report{}, err
	}
	if err := v.reportUnplaced(ctx); err != nil {
		return Report{}, err
	}
	if err := v.compareTree(); err != nil {
		return Report{}, err
	}
	for _, c := range v.kept {
		v.report.Comparisons = append(v.report.Comparisons, Comparison{Checkpoint: c,
			Problem: fmt.Sprintf("the ledger has %d leaves, the checkpoint %d", v.tree.size, c.Size)})
	}
	root, err := v.tree.root()
	v.report.Checkpoint = Checkpoint{Origin: v.end.origin, Size: v.tree.size, Root: root}
	return v.report, err
}
