package archiver_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The vacuum that frees the space of archived tasks freezes what stays, by the settings of the tables. So the one that
// PostgreSQL forces against a wraparound of transaction ids rewrites nothing.
func TestForcedVacuumRewritesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	owner := ledgertest.As(t, f.DB, ledgertest.Owner)
	const tasks = 1000
	for d, past := range []time.Duration{100 * 24 * time.Hour, 0} {
		if _, err := owner.Exec(t.Context(), day, time.Now().Add(-past), tasks, d); err != nil {
			t.Fatal(err)
		}
		if d == 0 {
			f.archive()
		}
	}
	var written int
	config := owner.Config().ConnConfig.Copy()
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if found := regexp.MustCompile(`WAL usage: (\d+) records`).FindStringSubmatch(n.Message); found != nil {
			n, _ := strconv.Atoi(found[1])
			written += n
		}
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	vacuum := func(sql string, args ...any) int {
		t.Helper()
		written = 0
		if _, err := conn.Exec(t.Context(), fmt.Sprintf(sql, args...)); err != nil {
			t.Fatal(err)
		}
		return written
	}
	for _, table := range []string{"event", "archived_key"} {
		minAge := f.text(`
			select o.option_value
			  from pg_class c cross join pg_options_to_table(c.reloptions) o
			 where c.oid = ('taskledger.' || $1::text)::regclass
			   and o.option_name = 'autovacuum_freeze_min_age'`, table)
		vacuum("set vacuum_freeze_min_age = %s", minAge) // which autovacuum uses
		f.awaitNoSnapshot()
		if n := vacuum("vacuum (verbose) taskledger.%s", table); n == 0 {
			t.Errorf("%s: the first vacuum has written nothing", table)
		}
		if n := vacuum("vacuum (verbose, freeze) taskledger.%s", table); n > 5 {
			t.Errorf("%s: the forced vacuum has written %d records", table, n)
		}
	}
}
