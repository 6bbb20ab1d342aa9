package archive

import (
	"context"
	_ "embed"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/unexported"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/beyond.sql
	beyondSQL string
	//go:embed sql/last_archived.sql
	lastArchivedSQL string
	//go:embed sql/erased.sql
	erasedSQL string
)

// maxPastBytes bounds the data of the events that a call of [Source.Reader] returns.
const maxPastBytes = 8 << 20

// File is a file of archived events.
type File struct {
	Name        string // "": the events are in no file
	Events      int64
	First, Last ledger.Position
}

// Beyond returns the files with the archived events that a snapshot may not see: a pg_snapshot, "3:3:" for the time
// before the first event.
func Beyond(ctx context.Context, db ledger.DB, seen string) ([]File, error) {
	rows, err := db.Query(ctx, beyondSQL, seen)
	if err != nil {
		return nil, pgerr.Explain("read where archived events are", err)
	}
	files, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f File, err error) {
		return f, row.Scan(&f.Name, &f.Events, (*int64)(&f.First), (*int64)(&f.Last))
	})
	return files, pgerr.Explain("read where archived events are", err)
}

// Reader implements [feed.Archive]. Events that are in no file are left out, unless Place contains them.
//
// Errors of the function: [*UnreadableError], or an error of the database.
func (s Source) Reader() feed.ArchiveReader { return (&past{source: s}).read }

// AddTo makes [ledger.Events] return the archived events of a range, too, in their place.
func (s Source) AddTo(r *ledger.Range) { unexported.SetArchive(r, (&past{source: s}).read) }

// past reads the events of archived tasks in the order of positions. It continues where the last call ended.
type past struct {
	source Source

	batch  int64                    // the last one when the volumes were opened
	of     unexported.ArchivedRange // for which they were opened, without Above, Last and Limit
	above  ledger.Position          // events up to it are passed
	merger *merger                  // nil: the volumes are not open
	next   *Record                  // the first event that was not passed
	logins map[int32]string
	file   string // one of the files
}

func (p *past) read(ctx context.Context, db ledger.DB, r unexported.ArchivedRange) ([]ledger.Event, bool, error) {
	var batch, floor int64
	if _, err := pgquery.Row(ctx, db, lastArchivedSQL, nil, &batch, &floor); err != nil || batch == 0 {
		return nil, false, pgerr.Explain("read archived events", err)
	}
	in, err := newSelection(r, floor)
	if err != nil {
		return nil, false, err
	}
	of := r
	of.From.After, of.Above, of.Last, of.Limit = 0, 0, 0, 0
	for isAgain := false; ; isAgain = true {
		if p.merger == nil || batch != p.batch || of != p.of || ledger.Position(r.Above) < p.above {
			p.close()
			if err := p.open(ctx, db, r); err != nil {
				return nil, false, err
			}
			p.batch, p.of = batch, of
		}
		events, more, err := p.page(ctx, db, r, in)
		if err == nil {
			return events, more, nil
		}
		p.close()
		if !errors.Is(err, fs.ErrNotExist) || isAgain { // an erasure may have replaced files
			return nil, false, &UnreadableError{File: p.file, Err: err}
		}
	}
}

func (p *past) close() {
	if p.merger != nil {
		p.merger.close()
	}
	p.merger, p.next = nil, nil
}

// open opens the volumes with the events of a range.
func (p *past) open(ctx context.Context, db ledger.DB, r unexported.ArchivedRange) error {
	files, err := Beyond(ctx, db, r.From.Seen)
	if err != nil {
		return err
	}
	files = slices.DeleteFunc(files, func(f File) bool { return f.Last <= ledger.Position(r.Above) })
	volumes := p.source.volumes(files)
	p.logins = make(map[int32]string)
	var readers []*Reader
	for place, names := range volumes {
		p.file = VolumeAt(place, names[0])
		reader, err := p.source.openPlace(ctx, db, place, names)
		if err != nil {
			return &UnreadableError{File: VolumeAt(place, names[0]), Err: err}
		}
		for id, name := range reader.logins() {
			p.logins[id] = name
		}
		readers = append(readers, reader)
	}
	p.above = ledger.Position(r.Above)
	p.merger = newMerger(p.above+1, readers...)
	return nil
}

// volumes returns the names of the volumes with the events of files by the places where they are read; "" is any volume
// there. Events that are in no file are left out, unless s has a place.
func (s Source) volumes(files []File) map[string][]string {
	volumes := make(map[string][]string)
	for _, f := range files {
		place, volume, ok := cutVolume(f.Name)
		switch {
		case s.Place != "":
			place = s.Place
		case !ok:
			continue
		}
		volumes[place] = append(volumes[place], volume)
	}
	return volumes
}

// openPlace opens volumes of an archive, and all volumes of the ledger if one of the names is "".
func (s Source) openPlace(ctx context.Context, db ledger.DB, place string, volumes []string) (*Reader, error) {
	store, err := s.Open(place)
	if err != nil {
		return nil, err
	}
	isAll := false
	for _, v := range volumes {
		isAll = isAll || v == ""
	}
	if !isAll {
		return Open(ctx, store, volumes...)
	}
	origin, err := Origin(ctx, db)
	if err != nil {
		return nil, err
	}
	reader, err := Open(ctx, store)
	if err != nil {
		return nil, err
	}
	kept := reader.volumes[:0]
	for _, m := range reader.volumes {
		if m.Ledger == origin {
			kept = append(kept, m)
		}
	}
	reader.volumes = kept
	return reader, nil
}

// cutVolume cuts the name under which the ledger records a volume into the archive's place and the volume's name.
func cutVolume(file string) (place, volume string, ok bool) {
	at := strings.LastIndex(file, "/"+volumesPrefix)
	if at < 0 {
		return "", "", false
	}
	return file[:at], file[at+len("/"+volumesPrefix):], true
}

// page returns the next events.
func (p *past) page(ctx context.Context, db ledger.DB, r unexported.ArchivedRange, in selection) (
	events []ledger.Event, more bool, err error) {
	var records []Record
	size := 0
	for {
		record := p.next
		if p.next = nil; record == nil {
			found, ok, err := p.merger.next(ctx)
			if err != nil {
				return nil, false, err
			}
			if !ok {
				break
			}
			record = &found
		}
		switch {
		case int64(record.Position) <= r.Above || int64(record.Position) <= r.Last && !in.contains(record):
			continue
		case int64(record.Position) > r.Last, len(records) == r.Limit, size > maxPastBytes:
			p.next, more = record, int64(record.Position) <= r.Last
		}
		if p.next != nil {
			break
		}
		records = append(records, *record)
		for _, text := range []*string{record.Data, record.Meta} {
			if text != nil {
				size += len(*text)
			}
		}
	}
	if more {
		p.above = records[len(records)-1].Position
	} else {
		p.above = ledger.Position(r.Last)
	}
	if err := blank(ctx, db, records); err != nil {
		return nil, false, err
	}
	events = make([]ledger.Event, len(records))
	for i, record := range records {
		events[i] = record.LedgerEvent(p.logins[record.LoginID])
	}
	return events, more, nil
}

// blank removes the texts of records of erased tasks: the archive may be an old copy.
func blank(ctx context.Context, db ledger.DB, records []Record) error {
	var kinds, ids pgarray.Builder
	for _, r := range records {
		kinds.Add(string(r.Kind))
		ids.Add(string(r.BizID))
	}
	if kinds.IsEmpty() {
		return nil
	}
	rows, err := db.Query(ctx, erasedSQL, kinds.String(), ids.String())
	if err != nil {
		return pgerr.Explain("read erasures", err)
	}
	until, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return pgerr.Explain("read erasures", err)
	}
	for i := range records {
		if int64(records[i].Position) <= until[i] {
			erase(&records[i])
		}
	}
	return nil
}

// selection is the events between two places.
type selection struct {
	from, to place
	floor    int64 // each snapshot but the first sees the events up to it
}

// place is a place of a reader. Without until, after and at are 0.
type place struct {
	seen, until snapshot
	after       int64
	at          int64 // microseconds
}

func newSelection(r unexported.ArchivedRange, floor int64) (selection, error) {
	from, failure := newPlace(r.From)
	to, err := newPlace(r.To)
	return selection{from, to, floor}, errors.Join(failure, err)
}

func newPlace(p unexported.ArchivedPlace) (at place, err error) {
	if p.Until != "" {
		at.after, at.at = p.After, p.At
		if at.until, err = parseSnapshot(p.Until); err != nil {
			return at, err
		}
	}
	at.seen, err = parseSnapshot(p.Seen)
	return at, err
}

// passed reports whether a reader at the place has passed an event: see the SQL function feed_passed.
func (p place) passed(r *Record, floor int64) bool {
	xid := r.XID
	if int64(r.Position) <= floor {
		xid = 3
	}
	if int64(r.Position) <= p.after || p.at != 0 && r.RecordedAt.UnixMicro() <= p.at {
		return p.until.sees(xid)
	}
	return p.seen.sees(xid)
}

func (s selection) contains(r *Record) bool {
	return !s.from.passed(r, s.floor) && s.to.passed(r, s.floor)
}
