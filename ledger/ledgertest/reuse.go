package ledgertest

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/backends"
)

var (
	//go:embed catalog.sql
	catalogSQL string
	//go:embed strangers.sql
	strangersSQL string
	//go:embed additions.sql
	additionsSQL string
	//go:embed filled.sql
	filledSQL string
	//go:embed sequences.sql
	sequencesSQL string
)

// database is a database of a test. The next test gets it as the migrations have left it, unless the test has changed
// more than rows that it has written, and tables of its own.
type database struct {
	name  string
	shelf *backends.Shelf
	owner *pgx.Conn // as superuser; nil until the first test has ended
}

// pristine describes a freshly migrated database.
type pristine struct {
	catalog      string   // fingerprint of the catalog
	tables       []string // those that are not empty
	rows         string   // hash of their rows, by rowsSQL
	rowsSQL      string
	deleteOthers string // statements that delete all other rows of these tables
	sequences    string // statement that sets them
}

// reuse holds the databases of a test process between tests.
type reuse struct {
	first sync.Mutex // is held while pristine is read

	mu       sync.Mutex // guards the fields below
	pristine *pristine
	free     []*database
	inUse    map[string]*database // by name
}

func newReuse() *reuse { return &reuse{inUse: make(map[string]*database)} }

// maxFree is the number of databases that wait for a test.
const maxFree = 16

// take returns a database that waits, or nil.
func (r *reuse) take() *database {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.free) == 0 {
		return nil
	}
	d := r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	r.inUse[d.name] = d
	return d
}

// add adds a database that a test uses.
func (r *reuse) add(d *database) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inUse[d.name] = d
}

// shelfOf returns the shelf of a database that a test uses, and nil for another database.
func (r *reuse) shelfOf(name string) *backends.Shelf {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.inUse[name]; d != nil {
		return d.shelf
	}
	return nil
}

// put takes a database back, and reports whether it keeps it.
func (r *reuse) put(d *database, isClean bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.inUse, d.name)
	if !isClean || len(r.free) >= maxFree {
		return false
	}
	r.free = append(r.free, d)
	return true
}

// learn describes the process's first migrated database.
func (r *reuse) learn(ctx context.Context, address string) error {
	r.first.Lock()
	defer r.first.Unlock()
	r.mu.Lock()
	isKnown := r.pristine != nil
	r.mu.Unlock()
	if isKnown {
		return nil
	}
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	p, err := describe(ctx, conn)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pristine = p
	return nil
}

// describe describes a freshly migrated database.
func describe(ctx context.Context, conn *pgx.Conn) (p *pristine, err error) {
	p = &pristine{}
	if p.catalog, err = queryOne[string](ctx, conn, catalogSQL); err != nil {
		return nil, err
	}
	if p.sequences, err = queryOne[string](ctx, conn, sequencesSQL); err != nil {
		return nil, err
	}
	if p.tables, err = queryOne[[]string](ctx, conn, filledSQL); err != nil {
		return nil, err
	}
	var rows, deletes []string
	for _, table := range p.tables {
		// The transactions that wrote the rows count, too: a test may read them.
		rows = append(rows, "(select string_agg(row(r.xmin, r.*)::text, ',' order by r::text) from "+table+" r)")
		transactions, err := queryOne[string](ctx, conn,
			"select string_agg(distinct quote_literal(r.xmin), ', ') from "+table+" r")
		if err != nil {
			return nil, err
		}
		deletes = append(deletes, "delete from "+table+" r where r.xmin::text not in ("+transactions+")")
	}
	p.rowsSQL = "select md5(concat_ws(';', " + strings.Join(rows, ", ") + "))"
	p.deleteOthers = strings.Join(deletes, "; ")
	p.rows, err = queryOne[string](ctx, conn, p.rowsSQL)
	return p, err
}

// clean restores a database to its state before the test. It reports false if that is not possible.
func (r *reuse) clean(ctx context.Context, d *database, address string) (isClean bool, err error) {
	r.mu.Lock()
	p := r.pristine
	r.mu.Unlock()
	if p == nil {
		return false, nil
	}
	if d.owner == nil {
		if d.owner, err = pgx.Connect(ctx, address); err != nil {
			return false, err
		}
		const settings = "set session_replication_role = replica; set client_min_messages = error" // without triggers
		if _, err := d.owner.Exec(ctx, settings); err != nil {
			return false, err
		}
	}
	if hasLeft, err := d.awaitStrangers(ctx); err != nil || !hasLeft {
		return false, err
	}
	additions, err := queryOne[string](ctx, d.owner, additionsSQL)
	if err != nil {
		return false, err
	}
	if additions != "" {
		if _, err := d.owner.Exec(ctx, additions); err != nil {
			return false, err
		}
	}
	catalog, err := queryOne[string](ctx, d.owner, catalogSQL)
	if err != nil || catalog != p.catalog {
		return false, err
	}
	return p.restore(ctx, d.owner)
}

// awaitStrangers waits until no other process is connected to the database, such as one killed by the test.
func (d *database) awaitStrangers(ctx context.Context) (hasLeft bool, err error) {
	for deadline := time.Now().Add(time.Second); ; time.Sleep(5 * time.Millisecond) {
		own := d.shelf.Processes()
		rows, err := d.owner.Query(ctx, strangersSQL, own)
		if err != nil {
			return false, err
		}
		n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
		if err != nil || n == 0 || time.Now().After(deadline) {
			return n == 0, err
		}
	}
}

// restore deletes the rows that the migrations have not written, and sets the sequences. It reports false if a row of
// the migrations has changed: it contains the transaction that wrote it.
func (p *pristine) restore(ctx context.Context, conn *pgx.Conn) (bool, error) {
	if _, err := conn.Exec(ctx, p.deleteOthers); err != nil {
		return false, err
	}
	rows, err := queryOne[string](ctx, conn, p.rowsSQL)
	if err != nil || rows != p.rows {
		return false, err
	}
	tables, err := queryOne[[]string](ctx, conn, filledSQL)
	if err != nil {
		return false, err
	}
	statements := p.sequences + "; select pg_stat_reset()"
	filled := slices.DeleteFunc(tables, func(name string) bool { return slices.Contains(p.tables, name) })
	if len(filled) > 0 {
		statements += "; truncate " + strings.Join(filled, ", ")
	}
	_, err = conn.Exec(ctx, statements)
	return err == nil, err
}

// end closes the connections of a database.
func (d *database) end(ctx context.Context) {
	d.shelf.Close()
	if d.owner != nil {
		_ = d.owner.Close(ctx)
	}
}

// give gives a database to a login.
func (d *database) give(ctx context.Context, login string) error {
	_, err := d.owner.Exec(ctx, fmt.Sprintf("alter database %s owner to %s", d.name, pgx.Identifier{login}.Sanitize()))
	return err
}
