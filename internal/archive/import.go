package archive

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/import_begin.sql
	importBeginSQL string
	//go:embed import_copy.sql
	importCopySQL string
	//go:embed sql/import_end.sql
	importEndSQL string
	//go:embed sql/import_erasure.sql
	importErasureSQL string
)

// ImportDB is a pgxpool.Pool or pgx.Conn.
type ImportDB interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// ImportOptions are the options of [Import]. Nil is the default of every field.
type ImportOptions struct {
	// Volumes are the volumes to import. Default: all complete ones.
	Volumes []string
	// Finish is called in the transaction, before the commit. Default: disabled.
	Finish func(ctx context.Context, tx pgx.Tx) error
	// Verified and Progress are called with the number of events so far and of all, first while the files are
	// verified and then while the events are inserted. Default: disabled.
	Verified, Progress func(done, total int64)
}

// Imported is the result of [Import].
type Imported struct {
	Ledger  string          `json:"ledger"` // the origin of the files
	Volumes int             `json:"volumes"`
	Events  int64           `json:"events"`
	Last    ledger.Position `json:"last"`   // the highest position
	Timers  int64           `json:"timers"` // of unfinished tasks
	// LeftOut are events that stay in the files alone: of keys that were enqueued again after their task was archived.
	LeftOut int64 `json:"left_out,omitempty"`
}

// ErrNotEmpty means that events cannot be imported, because the ledger has events, or because files are missing.
var ErrNotEmpty = errors.New("the events cannot be imported")

// errRepeated means that the files contain a version of a task twice.
var errRepeated = errors.New("the files contain a version of a task twice")

// ErrNoEvents means that an archive contains no events to import. It is an [ErrNotEmpty], too.
var ErrNoEvents = fmt.Errorf("%w: the archive contains no events", ErrNotEmpty)

// Import verifies volumes, and inserts their events into an empty ledger with their positions, versions and times, in
// one transaction. So a call that was killed has changed nothing. Events that several volumes contain are inserted
// once. Timers of unfinished tasks are set. All readers of the feed begin at the first event. The ledger keeps its own
// identity, and is sealed as a new tree. It needs the owner of the table event, and commits.
//
// Of a key that was enqueued again after its task was archived, the files contain version 1 twice. If this enqueue was
// discarded, its events are left out. If the task has run again, those of the archived run are left out.
//
// Errors: those of [Verify]; [ErrNotEmpty] if the ledger contains events; and errors if events of a task are missing,
// if a key was enqueued again after its task was archived and has not ended, or if a login_id has another name here.
func Import(ctx context.Context, db ImportDB, s Store, o *ImportOptions) (Imported, error) {
	if o == nil {
		o = &ImportOptions{}
	}
	report, err := Verify(ctx, s, &VerifyOptions{Volumes: o.Volumes, Progress: o.Verified})
	if err != nil {
		return Imported{}, err
	}
	r, err := Open(ctx, s, o.Volumes...)
	if err != nil {
		return Imported{}, err
	}
	if report.Events == 0 {
		return Imported{}, ErrNoEvents
	}
	i := &importer{reader: r, total: report.Events, progress: o.Progress}
	done, err := i.commit(ctx, db, o)
	if !errors.Is(err, errRepeated) {
		return done, err
	}
	leftOut, err := r.repeated(ctx)
	if err != nil {
		return Imported{}, err
	}
	i = &importer{reader: r, total: report.Events, progress: o.Progress, leftOut: leftOut}
	return i.commit(ctx, db, o)
}

// commit imports the events in one transaction.
func (i *importer) commit(ctx context.Context, db ImportDB, o *ImportOptions) (Imported, error) {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return Imported{}, pgerr.Explain("import", err)
	}
	defer pgquery.Rollback(ctx, tx) // after the commit it does nothing
	i.tx = tx
	if err := i.run(ctx); err != nil {
		return Imported{}, err
	}
	if o.Finish != nil {
		if err := o.Finish(ctx, tx); err != nil {
			return Imported{}, err
		}
	}
	fault.Point(fault.ImportEnd)
	return i.done, pgerr.Explain("import", tx.Commit(ctx))
}

// importer is a call of Import.
type importer struct {
	reader   *Reader
	tx       pgx.Tx
	total    int64
	progress func(done, total int64)
	done     Imported
	leftOut  map[ledger.Position]struct{}   // see Reader.repeated
	erased   map[ledger.Key]ledger.Position // by the archive's list: volumes of an old copy contain these texts
}

func (i *importer) run(ctx context.Context) error {
	var ids, names pgarray.Builder
	known := make(map[int32]string)
	for _, m := range i.reader.volumes {
		i.done.Ledger, i.done.Volumes = m.Ledger, i.done.Volumes+1
		for _, l := range m.Logins {
			name, found := known[l.ID]
			if found && name != l.Name {
				return &FileError{File: object(m.Name, manifestFile),
					Problem: fmt.Sprintf("login %d is %q, and %q in another volume", l.ID, l.Name, name)}
			}
			if !found {
				known[l.ID] = l.Name
				ids.AddInt(int64(l.ID))
				names.Add(l.Name)
			}
		}
	}
	if _, err := i.tx.Exec(ctx, importBeginSQL, ids.String(), names.String()); err != nil {
		return importError(err)
	}
	listed, err := Erasures(ctx, i.reader.store, i.done.Ledger)
	if err != nil {
		return err
	}
	i.erased = untilOf(listed)
	if err := i.copy(ctx); err != nil {
		return err
	}
	if err := i.addErasures(ctx, listed); err != nil {
		return err
	}
	fault.Point(fault.ImportCopied)
	if _, err := pgquery.Row(ctx, i.tx, importEndSQL, nil, &i.done.Timers); err != nil {
		return importError(err)
	}
	return feed.Adopt(ctx, i.tx)
}

// addErasures adds the archive's list to the ledger.
func (i *importer) addErasures(ctx context.Context, listed []Erasure) error {
	for _, e := range listed {
		var kinds, ids, until pgarray.Builder
		for _, t := range e.Tasks {
			kinds.Add(string(t.Kind))
			ids.Add(string(t.BizID))
			until.AddInt(int64(t.Until))
		}
		args := []any{e.ID, kinds.String(), ids.String(), until.String(), e.At.UnixMicro(), e.Actor, e.Reason}
		if _, err := i.tx.Exec(ctx, importErasureSQL, args...); err != nil {
			return importError(err)
		}
	}
	return nil
}

// importError returns [ErrNotEmpty] for an error that the functions raise themselves, and for a repeated version.
func importError(err error) error {
	var refused *pgconn.PgError
	if pgerr.Is(err, pgerr.UniqueViolation) && errors.As(err, &refused) {
		return fmt.Errorf("%w: %w: %s", ErrNotEmpty, errRepeated, refused.Detail)
	}
	if pgerr.Is(err, pgerr.ObjectNotInPrerequisiteState) {
		return fmt.Errorf("%w: %w", ErrNotEmpty, err)
	}
	return pgerr.Explain("import", err)
}

// copy inserts the events by COPY.
func (i *importer) copy(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from, to := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := i.send(ctx, to)
		ended <- err
		_ = to.CloseWithError(err) // never fails
	}()
	_, err := i.tx.Conn().PgConn().CopyFrom(ctx, from, importCopySQL)
	_ = from.CloseWithError(io.ErrClosedPipe) // ends send
	if sent := <-ended; sent != nil && !errors.Is(sent, io.ErrClosedPipe) {
		return sent
	}
	return importError(err)
}

// copyBytes is how much text is sent at once.
const copyBytes = 64 << 10

// send writes the rows in the text format of COPY.
func (i *importer) send(ctx context.Context, to io.Writer) error {
	rows := make([]byte, 0, 2*copyBytes)
	flush := func() error {
		_, err := to.Write(rows)
		rows = rows[:0]
		if i.progress != nil {
			i.progress(i.done.Events, i.total)
		}
		return err
	}
	err := i.reader.Range(ctx, 0, func(r Record) error {
		if _, isLeftOut := i.leftOut[r.Position]; isLeftOut {
			i.done.LeftOut++
			return nil
		}
		if r.Position <= i.erased[r.Key] {
			erase(&r)
		}
		rows = appendRow(rows, &r)
		i.done.Events, i.done.Last = i.done.Events+1, r.Position
		if len(rows) < copyBytes {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// appendRow appends a row of import_copy.sql.
func appendRow(to []byte, r *Record) []byte {
	number := func(n int64) { to = append(strconv.AppendInt(to, n, 10), '\t') }
	text := func(s string) { to = append(appendCopied(to, s), '\t') }
	optional := func(s *string) {
		if s == nil {
			to = append(to, "\\N\t"...)
			return
		}
		text(*s)
	}
	number(int64(r.Position))
	text(string(r.Kind))
	text(string(r.BizID))
	number(int64(r.Version))
	if r.Run == nil {
		optional(nil)
	} else {
		number(int64(*r.Run))
	}
	number(int64(r.Attempt))
	text(r.Type)
	to = append(r.RecordedAt.UTC().AppendFormat(to, "2006-01-02T15:04:05.000000Z"), '\t')
	number(int64(r.LoginID))
	number(int64(r.Shard))
	number(int64(r.DataVersion))
	number(int64(r.Priority))
	for _, s := range []*string{r.OrderKey, r.Partition, r.Data, r.Meta, r.Actor} {
		optional(s)
	}
	to[len(to)-1] = '\n'
	return to
}

// appendCopied appends a text with the escapes of COPY.
func appendCopied(to []byte, s string) []byte {
	for i := range len(s) {
		switch c := s[i]; c {
		case '\\':
			to = append(to, '\\', '\\')
		case '\n':
			to = append(to, '\\', 'n')
		case '\r':
			to = append(to, '\\', 'r')
		case '\t':
			to = append(to, '\\', 't')
		default:
			to = append(to, c)
		}
	}
	return to
}
