package seal_test

import (
	"testing"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// An archiver seals, the roles that read everything verify and prove, and no role changes the seal or moves its cursor.
func TestRights(t *testing.T) {
	f := newFixture(t)
	f.finish(1, 2)
	kept := f.seal().Checkpoint
	k := ledger.Key{Kind: "coupon.send", BizID: "1"}
	for role, may := range map[string]struct{ seal, read bool }{
		"archiver": {seal: true, read: true}, "reader": {read: true}, "operator": {read: true}, "relay": {read: true},
		"producer": {}, "worker": {}, "subscriber": {}, "api": {},
	} {
		t.Run(role, func(t *testing.T) {
			db := ledgertest.As(t, f.app, role)
			check := func(what string, isAllowed bool, err error) {
				t.Helper()
				if isAllowed && err != nil || !isAllowed && !pgerr.Is(err, pgerr.InsufficientPrivilege) {
					t.Errorf("%s: %v, allowed: %v", what, err, isAllowed)
				}
			}
			f.fill(1)
			_, err := seal.Run(t.Context(), db, nil)
			check("seal", may.seal, err)
			_, err = seal.Verify(t.Context(), db, nil)
			check("verify", may.read, err)
			_, err = seal.ProveTask(t.Context(), db, seal.Archive{}, k, 0, 10, kept)
			check("prove", may.read, err)
			for _, statement := range []string{
				`update taskledger.seal set salts = salts`, `update taskledger.seal set leaves = leaves`,
				`delete from taskledger.seal`, `truncate taskledger.seal`,
				`do $$ begin lock table taskledger.seal in share mode; end $$`,
				`select taskledger.erase_salts('coupon.send', '1')`,
				`select taskledger_internal.personal_digest('x', 'a', null, null)`,
				`alter table taskledger.seal disable trigger seal_append_only`,
			} {
				_, err := db.Exec(t.Context(), statement)
				check(statement, false, err)
			}
			others := []string{"seal"}
			if role == "archiver" {
				others = []string{"relay", "tasks", "subscriber/mails"}
			}
			for _, reader := range others {
				_, err = db.Exec(t.Context(), `
					insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin)
					values ($1, 1000, '3:3:', 0, '3', taskledger_internal.origin())`, reader)
				check("move the cursor of "+reader, false, err)
			}
		})
	}
	// A relay may delete rows of cursors, but not of this one.
	relay := ledgertest.As(t, f.app, "relay")
	removed, err := relay.Exec(t.Context(), `delete from taskledger.cursor where reader = 'seal'`)
	if err != nil || removed.RowsAffected() > 0 {
		t.Errorf("the relay removed %d rows of the seal's cursor, %v", removed.RowsAffected(), err)
	}
	if _, err := f.forger.Exec(t.Context(), `delete from taskledger.seal`); !pgerr.Is(err, "23001") {
		t.Errorf("the owner deletes rows by mistake: %v", err)
	}
}

// An archiver that moves the cursor over events without sealing them is found, and so is one that seals another text.
func TestArchiverIsNotTrusted(t *testing.T) {
	f := newFixture(t)
	f.finish(1, 1)
	f.seal()
	f.finish(2, 2)
	const moved = `
		insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin)
		select reader, n + 1, pg_current_snapshot(), 6, pg_snapshot_xmax(pg_current_snapshot()), origin
		  from taskledger.cursor where reader = 'seal' order by n desc limit 1`
	if _, err := f.archiver.Exec(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	f.expect(nil, "inserted: coupon.send/2@1, position 4", "inserted: coupon.send/2@2", "inserted: coupon.send/2@3")
	const forged = `
		insert into taskledger.seal (batch, first_leaf, first_node, top, is_late, positions, leaves, nodes, salts)
		values (2, 3, 0, 6, false, '{4,5,6}', sha256('a') || sha256('b') || sha256('c'), '',
		        array['\x00112233445566778899aabbccddeeff'::bytea, '\x00112233445566778899aabbccddeeff',
		              '\x00112233445566778899aabbccddeeff'])`
	if _, err := f.archiver.Exec(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	f.expect(nil, "changed: coupon.send/2@1, position 4", "changed: coupon.send/2@2", "changed: coupon.send/2@3")
}
