package seal

import (
	"context"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/lock.sql
	lockSQL string
	//go:embed sql/newest.sql
	newestSQL string
	//go:embed sql/unsealed.sql
	unsealedSQL string
	//go:embed sql/events.sql
	eventsSQL string
	//go:embed sql/append.sql
	appendSQL string
	//go:embed sql/may_seal.sql
	maySealSQL string
)

// batchSize is the greatest number of events in a batch.
const batchSize = 1024

// DB is a pgxpool.Pool or pgx.Conn.
type DB interface {
	ledger.DB
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Result is the result of [Run].
type Result struct {
	Checkpoint Checkpoint `json:"checkpoint"` // of the tree after the call
	Sealed     int64      `json:"sealed"`     // how many events this call sealed
}

// Run seals the events that were committed before it began, and returns the checkpoint after them. It commits each
// page of events. If it ends early, call it again: it continues. Concurrent calls share the events. Its cost grows
// with the events that it seals, not with the ledger. It needs the role archiver.
//
// progress is called after each batch with the number of events that this call has sealed, and an estimate of all,
// unless it is nil.
//
// Errors: an error for which IsRefusal of package ledger/feed is true; [*ledger.CorruptError].
func Run(ctx context.Context, db DB, progress func(done, total int64)) (Result, error) {
	s := &Sealer{db: db, progress: progress}
	sealed, err := s.Seal(ctx)
	if err != nil {
		return Result{Sealed: sealed}, err
	}
	newest, err := Newest(ctx, db)
	return Result{Checkpoint: newest, Sealed: sealed}, err
}

// Sealer seals events repeatedly, as a service does. It keeps its place in memory: a call without new events takes one
// statement. It is for one goroutine; several sealers may exist.
type Sealer struct {
	db       DB
	progress func(done, total int64)

	feed          *feed.Feed // nil: to be opened
	sealed, total int64      // of this call
	tree          *frontier  // after the last batch that this sealer appended
}

// NewSealer returns a sealer. It needs the role archiver.
func NewSealer(db DB) *Sealer { return &Sealer{db: db} }

// Seal seals the events that were committed before it began, as [Run], and returns their number. After an error it may
// be called again.
func (s *Sealer) Seal(ctx context.Context) (int64, error) {
	s.sealed, s.total = 0, 0
	for {
		err := s.run(ctx)
		if err == nil {
			return s.sealed, nil
		}
		s.feed, s.tree = nil, nil
		// Another call sealed the page, or PostgreSQL restarted after a crash, which undid no batch.
		if !errors.Is(err, feed.ErrSuperseded) && !errors.Is(err, feed.ErrCrashed) {
			return s.sealed, err
		}
	}
}

// CheckRole returns an error if the login of db may not seal, which needs the role archiver.
func CheckRole(ctx context.Context, db ledger.DB) error {
	_, err := db.Exec(ctx, maySealSQL)
	return explain("begin to seal", err)
}

// Newest returns the checkpoint of all sealed events.
func Newest(ctx context.Context, db ledger.DB) (Checkpoint, error) {
	e, err := readEnd(ctx, db)
	if err != nil {
		return Checkpoint{}, err
	}
	f, err := readFrontier(ctx, db, Archive{}, e.leaves)
	if err != nil {
		return Checkpoint{}, err
	}
	root, err := f.root()
	return Checkpoint{Origin: e.origin, Size: e.leaves, Root: root}, err
}

// end is the end of the seal.
type end struct {
	batch, leaves int64
	top           ledger.Position
	origin        string
}

func readEnd(ctx context.Context, db ledger.DB) (e end, err error) {
	var before, leaves int64
	_, err = pgquery.Row(ctx, db, newestSQL, nil, &e.batch, &before, &leaves, (*int64)(&e.top), &e.origin)
	if err != nil {
		return e, explain("read the seal", err)
	}
	if before < 0 || before > maxLeaves {
		err := fmt.Errorf("batch %d begins at leaf %d", e.batch, before)
		return e, &ledger.CorruptError{What: "number of leaves in the seal", Err: err}
	}
	e.leaves, e.origin = before+leaves, originPrefix+e.origin
	return e, nil
}

// run seals until everything is sealed that was visible when it opened its last window.
func (s *Sealer) run(ctx context.Context) error {
	isOld := false
	if s.feed == nil {
		// The sealer is audited by Verify.
		f, err := feed.Open(ctx, s.db, feed.SealReader, &feed.Options{PageSize: batchSize, AuditEvery: -1})
		if err != nil {
			return err
		}
		s.feed = f
		cursor := f.Cursor()
		isOld = cursor.Place().Until != (feed.Edge{}) // the open window belongs to a call that ended early
	}
	for {
		page, ok, err := s.feed.Poll(ctx)
		if err == nil && ok {
			err = s.sealPage(ctx, page)
		}
		if err != nil {
			return err
		}
		if !ok || page.Last() {
			if !isOld {
				return nil
			}
			isOld = false
		}
	}
}

// sealPage seals the events of a page, and commits.
func (s *Sealer) sealPage(ctx context.Context, page feed.Page) error {
	tx, err := s.db.BeginTx(ctx, pgquery.Brief)
	if err != nil {
		return explain("seal", err)
	}
	defer pgquery.Rollback(ctx, tx) // after the commit it does nothing
	if _, err := tx.Exec(ctx, lockSQL); err != nil {
		return explain("seal", err)
	}
	if err := page.Advance(ctx, tx, nil); err != nil {
		return err
	}
	e, err := readEnd(ctx, tx)
	if err != nil {
		return err
	}
	late, others, err := divide(ctx, tx, page, e.top)
	if err != nil {
		return err
	}
	if err := errors.Join(s.sealBatch(ctx, tx, &e, late, true), s.sealBatch(ctx, tx, &e, others, false)); err != nil {
		s.tree = nil
		return err
	}
	fault.Point(fault.SealBatch)
	if err := tx.Commit(ctx); err != nil {
		s.tree = nil
		return explain("seal", err)
	}
	fault.Point(fault.SealEnd)
	s.note(page, e.top, len(late)+len(others))
	return nil
}

// note reports the progress.
func (s *Sealer) note(page feed.Page, top ledger.Position, n int) {
	s.sealed += int64(n)
	place := page.Place()
	s.total = max(s.total, s.sealed, s.sealed+int64(place.Until.Top-top))
	if page.Last() {
		s.total = s.sealed
	}
	if s.progress != nil {
		s.progress(s.sealed, s.total)
	}
}

// divide returns the positions of a page's events that are not sealed: late ones, up to top, and the others. A feed
// that went back after a rebase returns sealed events again, none of them above top.
func divide(ctx context.Context, db ledger.DB, page feed.Page, top ledger.Position) (late, others []int64, err error) {
	for _, e := range page.Events {
		if e.Position > top {
			others = append(others, int64(e.Position))
		} else {
			late = append(late, int64(e.Position))
		}
	}
	slices.Sort(others)
	if len(late) == 0 {
		return nil, others, nil
	}
	var unsealed string
	if _, err := pgquery.Row(ctx, db, unsealedSQL, []any{literal(late)}, &unsealed); err != nil {
		return nil, nil, explain("seal", err)
	}
	late, err = parsePositions(unsealed)
	return late, others, err
}

// sealBatch appends a batch of events at the end of the seal, and moves the end.
func (s *Sealer) sealBatch(ctx context.Context, tx pgx.Tx, e *end, positions []int64, isLate bool) error {
	if len(positions) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, eventsSQL, literal(positions))
	if err != nil {
		return explain("seal", err)
	}
	events, err := collectEvents(rows)
	if err != nil {
		return explain("seal", err)
	}
	if len(events) != len(positions) {
		err := fmt.Errorf("%d of %d events at positions %d to %d do not exist", len(positions)-len(events),
			len(positions), positions[0], positions[len(positions)-1])
		return &ledger.CorruptError{What: "ledger", Err: err}
	}
	if s.tree == nil || s.tree.size != e.leaves {
		if s.tree, err = readFrontier(ctx, tx, Archive{}, e.leaves); err != nil {
			return err
		}
	}
	b := newBatch(*e, isLate)
	for _, event := range events {
		if err := b.add(s.tree, event, newSalt()); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, appendSQL, b.args()...); err != nil {
		return explain("seal", err)
	}
	e.batch, e.leaves, e.top = b.number, s.tree.size, b.top
	return nil
}

// newBatch returns an empty batch after the end of the seal.
func newBatch(e end, isLate bool) *batch {
	return &batch{
		number: e.batch + 1, firstLeaf: e.leaves, firstNode: firstNode(e.leaves), top: e.top, isLate: isLate,
	}
}

// add appends an event to the batch and to the tree.
func (b *batch) add(tree *frontier, e Event, salt []byte) error {
	leaf, err := e.leaf(salt)
	if err != nil {
		return err
	}
	nodes, err := tree.append(leaf)
	if err != nil {
		return err
	}
	b.positions = append(b.positions, int64(e.Position))
	b.leaves = append(b.leaves, leaf)
	b.nodes = append(b.nodes, nodes...)
	b.salts = append(b.salts, salt)
	b.top = max(b.top, e.Position)
	return nil
}

// args returns the arguments of append.sql.
func (b *batch) args() []any {
	isLate := 0
	if b.isLate {
		isLate = 1
	}
	var salts pgarray.Builder
	salts.Grow(len(b.salts), 2*saltBytes*len(b.salts))
	for _, salt := range b.salts {
		salts.Add(hex.EncodeToString(salt))
	}
	return []any{b.number, b.firstLeaf, b.firstNode, int64(b.top), isLate, literal(b.positions), formatHashes(b.leaves),
		formatHashes(b.nodes), salts.String()}
}

// literal returns positions as an array literal.
func literal(positions []int64) string {
	var b pgarray.Builder
	for _, p := range positions {
		b.AddInt(p)
	}
	return b.String()
}

// parsePositions parses positions that are separated by commas.
func parsePositions(text string) ([]int64, error) {
	if text == "" {
		return nil, nil
	}
	parts := strings.Split(text, ",")
	positions := make([]int64, len(parts))
	for i, part := range parts {
		var err error
		if positions[i], err = strconv.ParseInt(part, 10, 64); err != nil {
			return nil, &ledger.CorruptError{What: "positions of the seal", Err: err}
		}
	}
	return positions, nil
}
