package workers_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/migrations"
	"github.com/taskledger/taskledger/workers"
)

// limitedLogin creates a login whose only roles are roles of workers limited to these kinds, and returns its pool and
// the names of the roles.
func (b *bundle) limitedLogin(kinds ...string) (db *pgxpool.Pool, roles []string) {
	b.T.Helper()
	login := "limited_" + strings.ToLower(rand.Text())
	b.Forge("create role " + login + " login password 'x'; grant insert, select on effect to " + login)
	owner := ledgertest.URLAs(b.T, b.DB.Config().ConnString(), ledgertest.Owner)
	for _, kind := range kinds {
		l := migrations.LimitedWorker{Name: strings.ToLower(rand.Text()), Kinds: []string{kind}}
		try(migrations.MakeRoles(b.Context(), owner, "taskledger_test", l))(b.T)
		role := "taskledger_test_worker_" + l.Name
		roles = append(roles, role)
		b.Forge("grant " + role + " to " + login)
	}
	config := b.DB.Config()
	config.ConnConfig.User, config.ConnConfig.Password = login, "x"
	db = try(pgxpool.NewWithConfig(context.Background(), config))(b.T)
	b.T.Cleanup(func() {
		db.Close()
		for _, name := range append(roles, login) {
			ledgertest.ExecAsOwner(b.T, b.DB, "drop owned by "+name+"; drop role "+name)
		}
	})
	return db, roles
}

// runToEnd runs a pool until it ends by itself, and returns its error.
func (b *bundle) runToEnd(db *pgxpool.Pool) error {
	b.T.Helper()
	p := try(workers.New(workers.Config{DB: db, NATS: b.NC, LeaseTTL: leaseTTL}))(b.T)
	if err := b.exactly(insertEffect, nil)(p); err != nil {
		b.T.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), patience/2)
	defer cancel()
	err := p.Run(ctx)
	if ctx.Err() != nil {
		b.T.Error("the pool runs")
	}
	return err
}

// A pool whose login may not work on one of its kinds ends at its start. Its error names the login, the kind and the
// cure; it is no worker, and takes no task from others.
func TestPoolRefusesALimitedLogin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	db, _ := b.limitedLogin("test.orders.*")
	b.EnqueueMany(3)
	err := b.runToEnd(db)
	want := fmt.Sprintf("login %s may not work on kind test.order ", db.Config().ConnConfig.User)
	if !pgerr.Is(err, pgerr.InsufficientPrivilege) || !strings.Contains(err.Error(), want) ||
		!strings.Contains(err.Error(), "taskledger migrate roles --worker NAME=test.order") {
		t.Errorf("%v, want %q", err, want)
	}
	if n := one[int](b, "select count(*) from taskledger.workers"); n > 0 {
		t.Error("it counts as a worker")
	}
	b.Work(workers.Config{}, b.exactly(insertEffect, nil))
	b.AwaitSucceeded(3)
}

// A pool as a mere producer ends with an error that names the login and the cure.
func TestPoolRefusesAProducer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db := b.As("producer")
	err := b.runToEnd(db)
	for _, want := range []string{"login " + db.Config().ConnConfig.User, "role worker", "taskledger migrate roles"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A login loses the right to a kind while its pool works on it, and gets it back. Meanwhile its tasks, which row-level
// security hides, are not ghosts: they wait, and its lease ends. PostgreSQL keeps the policies of a statement that a
// connection has prepared, even when a role is granted.
func TestRightsChangeUnderAPool(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	db, roles := b.limitedLogin("test.order", "other")
	w := b.Work(workers.Config{DB: db}, b.exactly(insertEffect, nil))
	b.EnqueueMany(1)
	b.AwaitSucceeded(1)
	login := db.Config().ConnConfig.User
	b.Forge("revoke " + roles[0] + " from " + login)
	db.Reset() // until then its connections keep the right
	b.EnqueueRound("hidden", 5)
	b.Await("its lease to end", func() bool {
		return one[int](b, "select count(*) from taskledger_internal.worker_kinds") == 0
	})
	b.Forge("grant " + roles[0] + " to " + login)
	b.AwaitSucceeded(6)
	if n := w.KindStatus().Ghosts; n > 0 {
		t.Errorf("%d messages were refused as ghosts", n)
	}
}

// A login that is limited to kinds takes no permits of others, whatever else its list of kinds contains.
func TestLimitedLoginTakesNoOtherPermits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.limitConcurrency(1)
	b.EnqueueMany(1)
	db, _ := b.limitedLogin("other")
	for _, kinds := range []string{"{%s}", "{NULL,%s}", "{%s,NULL}", "{other,NULL,%s}", "[0:1]={other,%s}"} {
		const sql = `select taskledger_internal.begin_attempts($1::text::text[],
			array_fill('o-0000'::text, array[3]), array[1, 1, 1], array[1, 1, 1], 'w')`
		_, err := db.Exec(b.Context(), sql, fmt.Sprintf(kinds, b.Kind().Name()))
		if !pgerr.Is(err, pgerr.InsufficientPrivilege) {
			t.Errorf("%s: %v, want insufficient_privilege", kinds, err)
		}
		if n := b.permitsInUse(); n != 0 {
			t.Fatalf("%s: %d permits are in use", kinds, n)
		}
	}
}
