package plantest

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// EachQueryMode runs a test in each query mode of pgx, under [Settings]. setup returns a pool to the test's database;
// run receives a new pool to the same database.
func EachQueryMode(t *testing.T, setup func(t *testing.T) *pgxpool.Pool, run func(t *testing.T, db *pgxpool.Pool)) {
	t.Helper()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			config := setup(t).Config()
			Settings(t, config.ConnString())
			config.ConnConfig.DefaultQueryExecMode = mode
			db, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(db.Close)
			run(t, db)
		})
	}
}

// Settings gives a database the settings that change the text of values. A role or a database of a user may have them.
// They apply to connections that are opened afterwards. Prepare checks that no statement depends on them.
func Settings(t testing.TB, databaseURL string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `
		do $$
		declare
		  setting text;
		begin
		  foreach setting in array array['datestyle = ''German, DMY''', 'intervalstyle = sql_standard',
		      'timezone = ''Asia/Kathmandu''', 'bytea_output = escape', 'extra_float_digits = 0'] loop
		    execute format('alter database %I set ', current_database()) || setting;
		  end loop;
		end $$`)
	if err != nil {
		t.Fatal(err)
	}
}
