package archive

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/last.sql
	lastSQL string
	//go:embed sql/ended.sql
	endedSQL string
	//go:embed sql/next.sql
	nextSQL string
	//go:embed sql/logins.sql
	loginsSQL string
)

// ExportOptions are the options of [Export]. Nil is the default of every field.
type ExportOptions struct {
	// From is the first position. Default: after the last position that the archive's ranges of the same kinds
	// contain.
	From ledger.Position
	// To is the last position. Default: the last event that is committed when Export begins.
	To ledger.Position
	// Kinds are the kinds of the events. Default: all.
	Kinds []ledger.Kind
	// Wait bounds how long Export waits for transactions that were open when it began, because they can still commit
	// events below To. Default: 1 min.
	Wait time.Duration
	// Progress is called after each page with the position, from the first to the last. Default: disabled.
	Progress func(at, first, last ledger.Position)
}

const defaultWait = time.Minute

// OpenError means that a transaction was open for too long to end an export.
type OpenError struct{ Waited time.Duration }

func (e *OpenError) Error() string {
	return fmt.Sprintf("a transaction that began before the export is open after %s and can still commit events: end "+
		"it, see pg_stat_activity and pg_prepared_xacts, and export again", e.Waited)
}

// ErrNothing means that there are no events to export.
var ErrNothing = errors.New("the archive contains all events")

// Export writes the events of a range of positions as a volume, with the tiles of the tree if the ledger is sealed. It
// reads each page in its own transaction, and its memory does not grow with the range. If it ends early, call it
// again: it continues the unfinished volume that fits the options. A range that the archive contains is not written
// again: Export returns its manifest. It needs the role reader.
//
// Errors: [ErrNothing]; [*OpenError]; [ErrExists] if another process exports the same range; [*ledger.InvalidError];
// [*FileError] if the archive contains volumes of another ledger.
func Export(ctx context.Context, db *pgxpool.Pool, s Store, o *ExportOptions) (Manifest, error) {
	e := &export{db: db, store: s}
	if o != nil {
		e.o = *o
	}
	if e.o.Wait == 0 {
		e.o.Wait = defaultWait
	}
	switch err := e.begin(ctx); {
	case errors.Is(err, ErrNothing):
		return Manifest{}, errors.Join(err, CatchUp(ctx, db, s, nil))
	case err != nil:
		return Manifest{}, err
	}
	w, err := Create(ctx, s, e.plan)
	if errors.Is(err, ErrExists) {
		if m, readErr := ReadManifest(ctx, s, e.plan.Name); readErr == nil {
			return e.catchUp(ctx, m)
		}
	}
	if err != nil {
		return Manifest{}, err
	}
	c, err := e.writeAll(ctx, w)
	if err != nil {
		return Manifest{}, err
	}
	fault.Point(fault.ArchiveTiles)
	names, err := ReadLogins(ctx, db, w.LoginIDs())
	if err != nil {
		return Manifest{}, err
	}
	m, err := w.Close(ctx, &CloseOptions{Checkpoint: c, Logins: names})
	if err != nil {
		return m, err
	}
	return e.catchUp(ctx, m)
}

// catchUp erases what was erased since the archive was written, also during this export. It returns the manifest, which
// it may have replaced.
func (e *export) catchUp(ctx context.Context, m Manifest) (Manifest, error) {
	if err := CatchUp(ctx, e.db, e.store, nil); err != nil {
		return m, err
	}
	return ReadManifest(ctx, e.store, m.Name)
}

// export is a call of Export.
type export struct {
	db    *pgxpool.Pool
	store Store
	o     ExportOptions
	plan  Plan
}

// begin chooses the range, or the unfinished volume to continue.
func (e *export) begin(ctx context.Context) error {
	var last ledger.Position
	var bound, installation string
	if _, err := pgquery.Row(ctx, e.db, lastSQL, nil, (*int64)(&last), &bound, &installation); err != nil {
		return pgerr.Explain("export", err)
	}
	kinds := slices.Compact(slices.Sorted(slices.Values(e.o.Kinds)))
	e.plan = Plan{Ledger: originPrefix + installation, Content: Range, From: e.o.From, To: last, Kinds: kinds}
	if e.o.To > 0 {
		e.plan.To = min(e.o.To, last)
	}
	if e.plan.Kinds == nil {
		e.plan.Kinds = []ledger.Kind{}
	}
	if isContinued, err := e.resume(ctx); err != nil || isContinued {
		return err
	}
	next, err := e.readVolumes(ctx)
	if err != nil {
		return err
	}
	if e.plan.From == 0 {
		e.plan.From = next
	}
	if e.plan.From > e.plan.To {
		return ErrNothing
	}
	e.plan.Name = fmt.Sprintf("events-%019d-%019d", e.plan.From, e.plan.To)
	if len(kinds) > 0 {
		hash := sha256.Sum256(fmt.Append(nil, kinds))
		e.plan.Name += "-" + hex.EncodeToString(hash[:4])
	}
	return e.await(ctx, bound)
}

// originPrefix begins the origin of each ledger.
const originPrefix = "taskledger/"

// resume takes the plan of an unfinished volume that fits the options.
func (e *export) resume(ctx context.Context) (bool, error) {
	unfinished, err := Unfinished(ctx, e.store)
	for _, p := range unfinished {
		if p.Content == Range && p.Ledger == e.plan.Ledger && slices.Equal(p.Kinds, e.plan.Kinds) &&
			(e.o.From == 0 || e.o.From == p.From) && (e.o.To == 0 || e.plan.To == p.To) {
			e.plan = p
			return true, nil
		}
	}
	return false, err
}

// readVolumes returns the position after the ranges of the archive with these kinds.
func (e *export) readVolumes(ctx context.Context) (ledger.Position, error) {
	r, err := Open(ctx, e.store)
	if err != nil {
		return 0, err
	}
	next := ledger.Position(1)
	for _, m := range r.volumes {
		if m.Ledger != e.plan.Ledger {
			return 0, &FileError{File: object(m.Name, manifestFile), Problem: fmt.Sprintf(
				"it is of the ledger %s, and this is %s: use another archive", m.Ledger, e.plan.Ledger)}
		}
		if m.Content == Range && slices.Equal(m.Kinds, e.plan.Kinds) {
			next = max(next, m.To+1)
		}
	}
	return next, nil
}

// await waits until no open transaction can commit an event of the range.
func (e *export) await(ctx context.Context, bound string) error {
	began := time.Now()
	for {
		var hasEnded bool
		if _, err := pgquery.Row(ctx, e.db, endedSQL, []any{bound}, &hasEnded); err != nil {
			return pgerr.Explain("export", err)
		}
		waited := time.Since(began)
		if hasEnded {
			return nil
		}
		if waited > e.o.Wait {
			return &OpenError{Waited: e.o.Wait}
		}
		if err := loop.Sleep(ctx, min(max(waited, time.Millisecond), time.Second)); err != nil {
			return err
		}
	}
}

const (
	// firstPage and maxPage bound the number of events in a page.
	firstPage, maxPage = 256, 4096
	// pageBytes is how much text a page should contain.
	pageBytes = 4 << 20
)

// page is the result of reading a page.
type page struct {
	records []Record
	err     error
}

// writeAll writes the events and the tiles at once, and then the tiles of events that were sealed meanwhile.
func (e *export) writeAll(ctx context.Context, w *Writer) (c *seal.Checkpoint, err error) {
	err = loop.Together(ctx, func(ctx context.Context) error {
		return errors.Join(e.write(ctx, w), w.Cut(ctx))
	}, func(ctx context.Context) (err error) {
		c, err = WriteTiles(ctx, e.db, e.store)
		return err
	})
	if err != nil {
		return nil, err
	}
	if c == nil {
		return WriteTiles(ctx, e.db, e.store)
	}
	return writeTilesAfter(ctx, e.db, e.store, *c)
}

// write reads the pages in another goroutine, and writes them in this one.
func (e *export) write(ctx context.Context, w *Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	pages := make(chan page, 1)
	var reading sync.WaitGroup
	defer func() {
		cancel()
		reading.Wait()
	}()
	from := max(e.plan.From, w.Place().Last+1)
	reading.Go(func() {
		defer close(pages)
		e.read(ctx, from, pages)
	})
	for p := range pages {
		if p.err != nil {
			return p.err
		}
		for i := range p.records {
			if err := w.Add(ctx, &p.records[i]); err != nil {
				return err
			}
		}
		if e.o.Progress != nil {
			e.o.Progress(p.records[len(p.records)-1].Position, e.plan.From, e.plan.To)
		}
	}
	return ctx.Err()
}

// send reports whether another page follows.
func (p page) send(ctx context.Context, to chan<- page) bool {
	select {
	case to <- p:
		return p.err == nil
	case <-ctx.Done():
		return false
	}
}

// read sends the pages from a position on. No transaction is open while it waits for the writer.
func (e *export) read(ctx context.Context, from ledger.Position, pages chan<- page) {
	limit := firstPage
	for from <= e.plan.To {
		records, err := seal.ReadRange(ctx, e.db, from, e.plan.To, e.plan.Kinds, limit)
		if err == nil && len(records) == 0 {
			return
		}
		if !(page{records, err}).send(ctx, pages) || len(records) < limit {
			return
		}
		from = records[len(records)-1].Position + 1
		size := 1
		for i := range records {
			size += textBytes(&records[i])
		}
		limit = min(max(limit*pageBytes/size, 1), 4*limit, maxPage)
	}
}

// textBytes returns the length of the texts of an event.
func textBytes(r *Record) (n int) {
	for _, text := range []*string{r.Data, r.Meta, r.Actor} {
		if text != nil {
			n += len(*text)
		}
	}
	return n + len(r.BizID) + 100
}

// ReadLogins returns the names of logins by their ids.
func ReadLogins(ctx context.Context, db ledger.DB, ids []int32) ([]Login, error) {
	var list pgarray.Builder
	for _, id := range ids {
		list.AddInt(int64(id))
	}
	rows, err := db.Query(ctx, loginsSQL, list.String())
	if err != nil {
		return nil, pgerr.Explain("read logins", err)
	}
	names, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Login, err error) {
		return l, row.Scan(&l.ID, &l.Name)
	})
	return names, pgerr.Explain("read logins", err)
}

// WriteTiles writes the tiles of the tree of all sealed events that an archive lacks, and returns the checkpoint of the
// tree; nil if nothing is sealed. Its cost grows with the events that were sealed since the last volume. It needs the
// role reader.
//
// Errors: [seal.ErrInconsistent] if the archive contains the tiles of another tree; [*seal.TilesError] for tiles in
// another archive.
func WriteTiles(ctx context.Context, db ledger.DB, s Store) (*seal.Checkpoint, error) {
	before, err := tilesOf(ctx, s)
	if err != nil {
		return nil, err
	}
	return writeTilesAfter(ctx, db, s, before)
}

// anotherArchive is the cure of a ledger that has gone another way than its archive.
const anotherArchive = "if the database was restored from before, or is a copy, keep this archive and use another place"

// writeTilesAfter is WriteTiles for an archive that contains the tiles of a checkpoint.
func writeTilesAfter(ctx context.Context, db ledger.DB, s Store, before seal.Checkpoint) (*seal.Checkpoint, error) {
	c, err := seal.Newest(ctx, db)
	if err != nil || c.Size == 0 {
		return nil, err
	}
	if before.Size > c.Size {
		return nil, fmt.Errorf("%w: the archive contains the tree of %d leaves, the ledger has %d; %s",
			seal.ErrInconsistent, before.Size, c.Size, anotherArchive)
	}
	if before.Size > 0 {
		if err := seal.CheckPrefix(ctx, db, seal.Archive{Objects: s}, before); err != nil {
			return nil, fmt.Errorf("%w: the archive contains another tree: %w; %s", seal.ErrInconsistent, err,
				anotherArchive)
		}
	}
	type tile struct {
		path string
		data []byte
	}
	archived := seal.Archive{Objects: s}
	tiles := make(chan tile)
	write := func(ctx context.Context) error {
		for t := range tiles {
			if err := seal.PutTile(ctx, s, t.path, t.data); err != nil {
				return err
			}
		}
		return nil
	}
	read := func(ctx context.Context) error {
		defer close(tiles)
		return seal.NewTiles(ctx, db, archived, before.Size, c.Size, func(path string, data []byte) error {
			select {
			case tiles <- tile{path, data}:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}
	writers := slices.Repeat([]func(context.Context) error{write}, tileWriters)
	return &c, loop.Together(ctx, append(writers, read)...)
}

// CutSeal removes the rows of the seal whose tiles an archive contains, verified, and returns how many leaves they had:
// see [seal.CutRows]. place is the archive's place. It needs the role archiver.
//
// Errors: as [seal.CutRows]; errors of the store; [*FileError].
func CutSeal(ctx context.Context, db ledger.DB, s Store, place, actor, reason string) (int64, error) {
	return seal.CutRows(ctx, db, seal.CutOptions{
		Place: place, Actor: actor, Reason: reason,
		Fetch: func(ctx context.Context, path string) ([]byte, error) { return s.Get(ctx, path, 0, -1) },
		Size: func(ctx context.Context) (int64, error) {
			c, err := tilesOf(ctx, s)
			return c.Size, err
		},
	})
}

// tileWriters is how many tiles are written at once: each waits for the disk or the object store.
const tileWriters = 8

// tilesOf returns the largest checkpoint of the volumes: its tiles are in the archive.
func tilesOf(ctx context.Context, s Store) (c seal.Checkpoint, err error) {
	r, err := Open(ctx, s)
	if err != nil {
		return c, err
	}
	for _, m := range r.volumes {
		if m.Checkpoint != nil && m.Checkpoint.Size > c.Size {
			c = *m.Checkpoint
		}
	}
	return c, nil
}

// PositionAt returns the first position from a time on. Of events in transactions that took long, positions and times
// have different orders: the position decides. It returns the position after the last event for a later time.
func PositionAt(ctx context.Context, db ledger.DB, at time.Time) (ledger.Position, error) {
	var last int64
	var bound, installation string
	if _, err := pgquery.Row(ctx, db, lastSQL, nil, &last, &bound, &installation); err != nil {
		return 0, pgerr.Explain("position of a time", err)
	}
	low, high := int64(1), last+1 // the first position from the time on is between them
	for low < high {
		middle := low + (high-low)/2
		position, micros := int64(0), int64(0)
		found, err := pgquery.Row(ctx, db, nextSQL, []any{middle}, &position, &micros)
		switch {
		case err != nil:
			return 0, pgerr.Explain("position of a time", err)
		case found && micros < at.UnixMicro():
			low = position + 1
		default:
			high = middle
		}
	}
	return ledger.Position(low), nil
}
