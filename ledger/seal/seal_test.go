package seal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/seal"
)

// Every event is sealed once, by several calls; every proof is right for each checkpoint since its event was sealed.
func TestSeal(t *testing.T) {
	f := newFixture(t)
	if empty := f.seal(); empty.Sealed != 0 || empty.Checkpoint.Size != 0 {
		t.Errorf("sealed of an empty ledger: %+v", empty)
	}
	f.finish(1, 3)
	first := f.seal()
	if first.Sealed != 9 || first.Checkpoint.Size != 9 {
		t.Fatalf("sealed %+v, want 9 events", first)
	}
	if again := f.seal(); again.Sealed != 0 || again.Checkpoint != first.Checkpoint {
		t.Errorf("sealed again: %+v, want %+v", again, first)
	}
	f.fill(3000)
	f.finish(4, 6)
	second := f.seal()
	if second.Sealed != 3009 || second.Checkpoint.Size != 3018 {
		t.Fatalf("sealed %+v, want 3,009 events", second)
	}
	f.expect([]seal.Checkpoint{second.Checkpoint, first.Checkpoint})

	for _, c := range []seal.Checkpoint{first.Checkpoint, second.Checkpoint} {
		events := f.prove("coupon.send/2", c)
		if len(events) != 3 || events[0].Proof == nil || events[0].Proof.Leaf != 3 {
			t.Errorf("proofs of task 2: %+v", events)
		}
	}
	if events := f.prove("coupon.send/5", first.Checkpoint); len(events) != 3 || events[0].Proof != nil {
		t.Errorf("proofs of a task that is newer than the checkpoint: %+v", events)
	}
	if events := f.prove("coupon.send/6", second.Checkpoint); events[2].Proof == nil || events[2].Proof.Leaf != 3017 {
		t.Errorf("proofs of the last task: %+v", events)
	}
	later := second.Checkpoint
	later.Size++
	if _, err := seal.ProveTask(t.Context(), f.reader, ledger.Key{}, 0, 1, later); !errors.Is(err, seal.ErrNotSealed) {
		t.Errorf("a checkpoint that is newer than the ledger: %v", err)
	}
	later.Size--
	later.Root[0]++
	if _, err := seal.ProveTask(t.Context(), f.reader, ledger.Key{}, 0, 1, later); !errors.Is(err, seal.ErrMismatch) {
		t.Errorf("a checkpoint of another tree: %v", err)
	}
}

// The tree is that of package tlog, for every number of leaves and every division into batches.
func TestTreeIsThatOfRFC6962(t *testing.T) {
	f := newFixture(t)
	var roots []seal.Checkpoint
	for n := range 70 {
		f.fill(1 + n%5)
		roots = append(roots, f.seal().Checkpoint)
	}
	rows, err := f.forger.Query(t.Context(), "select encode(leaves, 'hex') from taskledger.seal order by batch")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) (hashes []tlog.Hash, err error) {
		for _, i := range indexes {
			hashes = append(hashes, stored[i])
		}
		return hashes, nil
	})
	size := int64(0)
	for i := 0; rows.Next(); i++ {
		var leaves string
		if err := rows.Scan(&leaves); err != nil {
			t.Fatal(err)
		}
		for ; len(leaves) > 0; leaves = leaves[64:] {
			var leaf tlog.Hash
			if _, err := fmt.Sscanf(leaves[:64], "%x", (*hexHash)(&leaf)); err != nil {
				t.Fatal(err)
			}
			hashes, err := tlog.StoredHashesForRecordHash(size, leaf, reader)
			if err != nil {
				t.Fatal(err)
			}
			stored = append(stored, hashes...)
			size++
		}
		root, err := tlog.TreeHash(size, reader)
		if err != nil || size != roots[i].Size || root != roots[i].Root {
			t.Fatalf("%d leaves: root %s, %v; the seal has %+v", size, root, err, roots[i])
		}
	}
	f.expect(roots)
}

// hexHash scans a hash from hexadecimal.
type hexHash tlog.Hash

func (h *hexHash) Scan(state fmt.ScanState, _ rune) error {
	var b []byte
	_, err := fmt.Fscanf(state, "%x", &b)
	copy(h[:], b)
	return err
}

// Forgeries of a sealed ledger by its owner, and the lines that verify reports.
func TestForgeriesAreReported(t *testing.T) {
	const task3 = "coupon.send/3@2, position 8, leaf 7"
	tests := map[string]struct {
		forgery []string
		want    []string
	}{
		"nothing": {},
		"a byte of data": {
			forgery: []string{`update taskledger.event set data = '{"percent":9}' where position = 7`},
			want:    []string{"changed: coupon.send/3@1, position 7, leaf 6"},
		},
		"a type": {
			forgery: []string{`update taskledger.event set type = 'failed' where position = 8`},
			want:    []string{"changed: " + task3},
		},
		"a time": {
			forgery: []string{
				`update taskledger.event set recorded_at = recorded_at + interval '1 us' where position = 8`,
			},
			want: []string{"changed: " + task3},
		},
		"a login": {
			forgery: []string{`update taskledger.event set login_id = login_id + 1 where position = 8`},
			want:    []string{"changed: " + task3},
		},
		"a column without a feature": {
			forgery: []string{`update taskledger.event set partition = 1 where position = 8`},
			want:    []string{"changed: " + task3},
		},
		"the name of a login, which is a pseudonym then": {
			forgery: []string{`update taskledger.login set name = 'login 1'`},
		},
		"the last event of a task": {
			forgery: []string{`delete from taskledger.event where position = 9`},
			want:    []string{"removed: position 9, leaf 8"},
		},
		"the last events": {
			forgery: []string{`delete from taskledger.event where position >= 14`},
			want:    []string{"removed: position 14, leaf 12", "removed: position 15, leaf 13"},
		},
		"two events exchanged": {
			forgery: []string{
				`alter table taskledger.event alter column position set generated by default`,
				`update taskledger.event set position = -position where position in (12, 14)`,
				`update taskledger.event set position = 26 + position where position in (-12, -14)`,
			},
			want: []string{"changed: coupon.send/5@2, position 12, leaf 10",
				"changed: coupon.send/4@2, position 14, leaf 12"},
		},
		"an event inserted between others": {
			forgery: []string{
				`alter table taskledger.event alter column position set generated by default`,
				`update taskledger.event set position = 10 where position = 9`,
				`insert into taskledger.event overriding system value
				 select xid, 9, recorded_at, 9, attempt, type, login_id, run, shard, data_version, priority,
				        kind, biz_id, actor, order_key, partition, data, meta
				   from taskledger.event where position = 8`,
			},
			want: []string{
				"changed: coupon.send/3@9, position 9, leaf 8", "inserted: coupon.send/3@3, position 10",
			},
		},
		"an event inserted in a gap": {
			forgery: []string{
				`insert into taskledger.event (xid, position, version, attempt, type, shard, kind, biz_id)
				 overriding system value
				 select e.xid, 10, 1, 0, 'enqueued', 0, 'coupon.send', 'forged'
				   from taskledger.event e where e.position = 9`,
			},
			want: []string{"inserted: coupon.send/forged@1, position 10"},
		},
		"an event inserted above the last one": {
			forgery: []string{
				`insert into taskledger.event (xid, position, version, attempt, type, shard, kind, biz_id)
				 overriding system value
				 select e.xid, 17, 1, 0, 'enqueued', 0, 'coupon.send', 'forged'
				   from taskledger.event e where e.position = 9`,
			},
			want: []string{"inserted: coupon.send/forged@1, position 17"},
		},
		"an event inserted before the first one": {
			forgery: []string{
				`insert into taskledger.event (xid, position, version, attempt, type, shard, kind, biz_id)
				 overriding system value
				 select e.xid, '-9223372036854775808', 1, 0, 'enqueued', 0, 'coupon.send', 'forged'
				   from taskledger.event e where e.position = 9`,
			},
			want: []string{"inserted: coupon.send/forged@1, position -9223372036854775808"},
		},
		"an event inserted above every position": {
			forgery: []string{
				`insert into taskledger.event (xid, position, version, attempt, type, shard, kind, biz_id)
				 overriding system value
				 select e.xid, 9223372036854775807, 1, 0, 'enqueued', 0, 'coupon.send', 'forged'
				   from taskledger.event e where e.position = 9`,
			},
			want: []string{"inserted: coupon.send/forged@1, position 9223372036854775807"},
		},
		"an event inserted with the transaction ID of no commit": {
			forgery: []string{
				`insert into taskledger.event (xid, position, version, attempt, type, shard, kind, biz_id)
				 overriding system value
				 select '9000000000000', 10, 1, 0, 'enqueued', 0, 'coupon.send', 'forged'
				   from taskledger.event e where e.position = 9`,
			},
			want: []string{"inserted: coupon.send/forged@1, position 10"},
		},
		"an event inserted at the position of another one": {
			forgery: []string{
				`alter table taskledger.event drop constraint event_position_key`,
				`create index on taskledger.event (position)`,
				`insert into taskledger.event (xid, position, version, attempt, type, shard, kind, biz_id)
				 overriding system value
				 select e.xid, 8, 1, 0, 'enqueued', 0, 'coupon.send', 'forged'
				   from taskledger.event e where e.position = 9`,
			},
			want: []string{"inserted: coupon.send/forged@1, position 8: another event has this position"},
		},
		"an event inserted, and a batch below all others that has it": {
			forgery: []string{
				`insert into taskledger.seal
				  (batch, first_leaf, first_node, top, is_late, positions, leaves, nodes, salts)
				 values ('-9223372036854775808', -1, 0, 0, true, '{10}', sha256('x'), '', array[sha256('x')])`,
				`insert into taskledger.event (xid, position, version, attempt, type, shard, kind, biz_id)
				 overriding system value
				 select e.xid, 10, 1, 0, 'enqueued', 0, 'coupon.send', 'forged'
				   from taskledger.event e where e.position = 9`,
			},
			want: []string{
				"seal: batch -9223372036854775808 follows batch 0", "changed: coupon.send/forged@1, position 10",
				"seal: batch 1 follows batch -9223372036854775808", "checkpoint: the first 9 leaves have the hash ",
			},
		},
		"a time that is infinite": {
			forgery: []string{`update taskledger.event set recorded_at = 'infinity' where position = 8`},
			want:    []string{"changed: " + task3},
		},
		"the number of leaves before a batch": {
			forgery: []string{`update taskledger.seal set first_leaf = '-9223372036854775808' where batch = 1`},
			want:    []string{"seal: batch 1 begins at leaf -9223372036854775808, and 0 leaves are before it"},
		},
		"the bounds of an array of the seal": {
			forgery: []string{`update taskledger.seal set positions = '[0:8]={1,2,3,4,5,6,7,8,9}' where batch = 1`},
			want:    []string{"seal: the arrays of batch 1 do not have one dimension"},
		},
		"the dimensions of an array of the seal": {
			forgery: []string{`update taskledger.seal set positions = '{{1,2,3},{4,5,6},{7,8,9}}' where batch = 1`},
			want:    []string{"seal: the arrays of batch 1 do not have one dimension"},
		},
		"a leaf": {
			forgery: []string{
				`update taskledger.seal set leaves = overlay(leaves placing '\x00' from 33) where batch = 1`,
			},
			want: []string{
				"changed: coupon.send/1@2, position 2, leaf 1", "checkpoint: the first 9 leaves have the hash ",
			},
		},
		"a salt": {
			forgery: []string{
				`update taskledger.seal set salts[2] = '\x00112233445566778899aabbccddeeff' where batch = 1`,
			},
			want: []string{"changed: coupon.send/1@2, position 2, leaf 1"},
		},
		"an event and its leaf": {
			forgery: []string{
				`update taskledger.event set data = '{"percent":9}', meta = null, actor = null where position = 1`,
				`update taskledger.seal set leaves = overlay(leaves placing sha256('forged') from 1),
				        salts[1] = sha256('forged') where batch = 1`,
			},
			want: []string{"changed: coupon.send/1@1, position 1, leaf 0: the seal has a digest in place of the salt",
				"checkpoint: the first 9 leaves have the hash "},
		},
		"two rows of the seal exchanged": {
			forgery: []string{`update taskledger.seal set batch = -batch where batch in (1, 2)`,
				`update taskledger.seal set batch = 3 + batch where batch < 0`},
			want: []string{
				"seal: batch 1 begins at leaf 9, and 0 leaves are before it",
				"seal: batch 2 begins at leaf 0, and 14 leaves are before it",
				"checkpoint: the first 9 leaves have the hash ",
			},
		},
		"the first row of the seal removed": {
			forgery: []string{`delete from taskledger.seal where batch = 1`},
			want:    []string{"seal: batch 2 follows batch 0", "checkpoint: the ledger has 5 leaves, the checkpoint 9"},
		},
		"the seal emptied": {
			forgery: []string{`truncate taskledger.seal`, `delete from taskledger.cursor where reader = 'seal'`},
			want:    []string{"checkpoint: the ledger has 0 leaves, the checkpoint 9"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.finish(1, 3)
			kept := []seal.Checkpoint{f.seal().Checkpoint}
			// Position 10 is a gap, as a rollback leaves it; 16 and 17 come after the last event.
			f.forge(`select nextval('taskledger.event_position_seq')`)
			ledgertest.Enqueue(t, f.app, ledgertest.Key(t, "coupon.send/4"), `{"percent":4}`)
			ledgertest.Append(t, f.app, ledgertest.Key(t, "coupon.send/4"), ledger.EventStarted)
			ledgertest.Enqueue(t, f.app, ledgertest.Key(t, "coupon.send/5"), `{"percent":5}`)
			ledgertest.Append(t, f.app, ledgertest.Key(t, "coupon.send/5"), ledger.EventStarted, ledger.EventSucceeded)
			f.forge(`select nextval('taskledger.event_position_seq'), nextval('taskledger.event_position_seq')`)
			f.seal()
			f.expect(kept)
			for _, sql := range test.forgery {
				f.forge(sql)
			}
			f.expect(kept, test.want...)
		})
	}
}

// An owner who changes an event, and seals everything anew, has a seal without faults. Only the checkpoint that was
// kept outside shows it.
func TestNewSealOfAForgedLedger(t *testing.T) {
	f := newFixture(t)
	f.finish(1, 3)
	kept := f.seal().Checkpoint
	f.forge(`update taskledger.event set type = 'failed' where position = 9`)
	f.forge(`truncate taskledger.seal`)
	f.forge(`delete from taskledger.cursor where reader = 'seal'`)
	if again := f.seal(); again.Checkpoint.Size != kept.Size {
		t.Fatalf("the new seal has %d leaves, want %d", again.Checkpoint.Size, kept.Size)
	}
	f.expect(nil)
	f.expect([]seal.Checkpoint{kept}, "checkpoint: the first 9 leaves have the hash ")
}

// A change of any column of an event is reported, also one that is added later, except that of the transaction ID.
func TestEveryColumnIsCovered(t *testing.T) {
	f := newFixture(t)
	f.finish(1, 1)
	kept := f.seal().Checkpoint
	changes := map[string]string{
		"position": "-position", "version": "version + 10",
		"recorded_at": "recorded_at - interval '1 us'", "type": "'failed'", "kind": "kind || 'x'",
		"biz_id": "biz_id || 'x'", "actor": "actor || ' '", "order_key": "''", "partition": "0",
		"data": `(data::text || ' ')::json`, "meta": `'null'`, "xid": "'3'",
	}
	rows, err := f.forger.Query(t.Context(), `select attname::text from pg_attribute
		where attrelid = 'taskledger.event'::regclass and attnum > 0 and not attisdropped order by attnum`)
	if err != nil {
		t.Fatal(err)
	}
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	f.forge(`alter table taskledger.event alter column position set generated by default`)
	for _, column := range columns {
		change := changes[column]
		if change == "" {
			change = column + " + 1" // of numbers
		}
		f.forge(`create table public.kept as select * from taskledger.event`)
		f.forge(`update taskledger.event set ` + column + ` = ` + change + ` where position = 1`)
		if report := f.verify(kept); report.IsValid() != (column == "xid") {
			t.Errorf("%s is changed: %+v", column, report)
		}
		f.forge(`truncate taskledger.event`)
		f.forge(`insert into taskledger.event overriding system value select * from public.kept`)
		f.forge(`drop table public.kept`)
	}
	f.expect([]seal.Checkpoint{kept})
}

// An event that the owner adds now among the sealed ones is not sealed yet, as any new one. The sealer finds it only if
// its cursor was moved back; then it has a new leaf, of no checkpoint of the past.
func TestEventAddedNow(t *testing.T) {
	for name, isRewound := range map[string]bool{"cursor as it was": false, "cursor removed": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.finish(1, 1)
			f.forge(`select nextval('taskledger.event_position_seq')`) // position 4
			f.finish(2, 2)
			kept := f.seal().Checkpoint
			f.forge(`insert into taskledger.event (position, version, attempt, type, shard, kind, biz_id)
				overriding system value values (4, 1, 0, 'enqueued', 0, 'coupon.send', 'forged')`)
			if report := f.verify(kept); !report.IsValid() || report.Unsealed != 1 {
				t.Errorf("before it is sealed: %+v", report)
			}
			f.finish(3, 3)
			if report := f.verify(kept); !report.IsValid() || report.Unsealed != 4 {
				t.Errorf("before it is sealed, with others: %+v", report)
			}
			if !isRewound {
				f.seal()
				f.expect([]seal.Checkpoint{kept}, "inserted: coupon.send/forged@1, position 4")
				return
			}
			f.forge(`delete from taskledger.cursor where reader = 'seal'`)
			if sealed := f.seal().Sealed; sealed != 4 {
				t.Errorf("sealed %d events, want 4", sealed)
			}
			f.expect([]seal.Checkpoint{kept})
			if events := f.prove("coupon.send/forged", kept); events[0].Proof != nil {
				t.Errorf("the checkpoint of before has the event: %+v", events[0].Proof)
			}
		})
	}
}

// Wrong numbers in a row of the seal are an error of the ledger, not of SQL.
func TestCorruptNumbers(t *testing.T) {
	for name, forgery := range map[string]string{
		"leaves before a batch, below 0":   `update taskledger.seal set first_leaf = '-9223372036854775808'`,
		"leaves before a batch, above all": `update taskledger.seal set first_leaf = 9223372036854775807`,
		"nodes before a batch":             `update taskledger.seal set first_node = '-9223372036854775808'`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.finish(1, 33)
			f.seal()
			f.forge(forgery)
			var corrupt *ledger.CorruptError
			if _, err := seal.Newest(t.Context(), f.reader); !errors.As(err, &corrupt) {
				t.Errorf("%v, want a CorruptError", err)
			}
		})
	}
}

// A null where no column can have one is an error of the ledger, with exit code 7, not one of the program.
func TestNullsOfAnOwner(t *testing.T) {
	for table, column := range map[string]string{"event": "shard", "seal": "top"} {
		t.Run(column, func(t *testing.T) {
			f := newFixture(t)
			f.finish(1, 1)
			f.seal()
			f.forge(`alter table taskledger.` + table + ` alter ` + column + ` drop not null`)
			f.forge(`update taskledger.` + table + ` set ` + column + ` = null`)
			var corrupt *ledger.CorruptError
			if _, err := seal.Verify(t.Context(), f.reader, nil); !errors.As(err, &corrupt) {
				t.Errorf("%v, want a CorruptError", err)
			}
		})
	}
}

// Thousands of inserted events, and thousands of changed ones, are all counted; the first hundred are listed.
func TestManyForgeries(t *testing.T) {
	f := newFixture(t)
	f.finish(1, 1)
	f.forge(`select setval('taskledger.event_position_seq', 5000)`)
	f.fill(2000)
	f.seal()
	f.forge(`insert into taskledger.event (xid, position, version, attempt, type, shard, kind, biz_id)
		overriding system value
		select e.xid, 1000 + i, 1, 0, 'enqueued', 0, 'coupon.send', 'forged/' || i
		  from taskledger.event e, generate_series(1, 2500) i where e.position = 1`)
	report := f.verify()
	if report.Faulty != 2500 || len(report.Faults) != seal.MaxFaults || report.Faults[99].Position != 1100 {
		t.Errorf("%d inserted events, %d are listed, want 2,500 and 100", report.Faulty, len(report.Faults))
	}
	f.forge(`delete from taskledger.event where biz_id like 'forged/%'`)
	f.expect(nil)
	f.forge(`update taskledger.event set data = '[]' where kind = 'mail.send'`)
	if report := f.verify(); report.Faulty != 2000 || report.Faults[0].Position != 5001 {
		t.Errorf("%d changed events, want 2,000", report.Faulty)
	}
}

// Nodes of the tree that were changed are reported, and a proof by them is invalid.
func TestForgedNodes(t *testing.T) {
	f := newFixture(t)
	f.fill(1000)
	f.finish(1, 1)
	kept := f.seal().Checkpoint
	f.forge(`update taskledger.seal set nodes = overlay(nodes placing sha256('forged') from 1) where batch = 1`)
	f.expect([]seal.Checkpoint{kept}, "seal: the nodes of batch 1 are not those of its leaves")
	f.forge(`update taskledger.seal set nodes = decode(repeat('00', octet_length(nodes)), 'hex')`)
	if newest, err := seal.Newest(t.Context(), f.reader); err != nil || newest == kept {
		t.Errorf("the forged nodes are not used: %v", err)
	}
	_, err := seal.ProveTask(t.Context(), f.reader, ledgertest.Key(t, "coupon.send/1"), 0, 10, kept)
	if !errors.Is(err, seal.ErrMismatch) {
		t.Errorf("a proof by forged nodes: %v", err)
	}
}

// A transaction that commits after events with higher positions were sealed is sealed later, and found.
func TestLateEvents(t *testing.T) {
	f := newFixture(t)
	f.finish(1, 1)
	tx, err := f.app.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	ledgertest.Enqueue(t, tx, ledgertest.Key(t, "coupon.send/late"), `{}`)
	f.finish(2, 3)
	first := f.seal()
	if first.Sealed != 9 {
		t.Fatalf("sealed %d events, want 9", first.Sealed)
	}
	f.expect([]seal.Checkpoint{first.Checkpoint})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.expect([]seal.Checkpoint{first.Checkpoint}) // it is not sealed yet, and no forgery
	f.finish(4, 4)
	second := f.seal()
	if second.Sealed != 4 {
		t.Fatalf("sealed %d events, want 4", second.Sealed)
	}
	f.expect([]seal.Checkpoint{first.Checkpoint, second.Checkpoint})
	if late := f.prove("coupon.send/late", second.Checkpoint); len(late) != 1 || late[0].Proof.Leaf != 9 ||
		late[0].Proof.Event.Position != 4 {
		t.Errorf("proofs of the late task: %+v", late[0].Proof)
	}
	f.forge(`update taskledger.event set data = '[]' where biz_id = 'late'`)
	f.expect(nil, "changed: coupon.send/late@1, position 4, leaf 9")
	f.forge(`delete from taskledger.event where biz_id = 'late'`)
	f.expect(nil, "removed: position 4, leaf 9")
}

// A sealer may be killed before and after each commit. The next one continues, and nothing is doubled.
func TestKilledSealerIsContinued(t *testing.T) {
	f := newFixture(t)
	f.fill(3000)
	for _, point := range []string{seal.FaultSealBatch, seal.FaultSealEnd} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), fault.Variable+"="+point,
			sealedDatabase+"="+ledgertest.URLAs(t, f.forger.Config().ConnString(), "archiver"))
		output, _ := cmd.CombinedOutput()
		status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
			t.Fatalf("the process was not killed at %s: %s", point, output)
		}
	}
	if sealed := f.count(`select count(*) from taskledger.seal`); sealed != 1 {
		t.Errorf("%d batches after both crashes, want 1", sealed)
	}
	f.fill(10) // while the window of the killed sealer is open
	if result := f.seal(); result.Sealed != 3010-1024 || result.Checkpoint.Size != 3010 {
		t.Errorf("%+v, want the rest of 3,010 events", result)
	}
	f.expect(nil)
}

func TestSealersAtOnce(t *testing.T) {
	f := newFixture(t)
	f.fill(20_000)
	var group sync.WaitGroup
	results := make([]seal.Result, 3)
	for i := range results {
		group.Go(func() {
			var err error
			if results[i], err = seal.Run(t.Context(), f.archiver, nil); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	sum := int64(0)
	var kept []seal.Checkpoint
	for _, r := range results {
		sum += r.Sealed
		kept = append(kept, r.Checkpoint)
	}
	if sum != 20_000 {
		t.Errorf("sealed %d events, want 20,000: %+v", sum, results)
	}
	f.expect(kept)
}

// After a restore the feed gives sealed events again. Each stays sealed once, and those that came later are sealed.
func TestRebase(t *testing.T) {
	for name, test := range map[string]struct {
		recent      int // how many tasks were finished after the last seal
		isForgotten bool
	}{
		"all events are sealed":          {},
		"some events are not sealed":     {recent: 4},
		"the cursor was not in the dump": {recent: 4, isForgotten: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.finish(1, 3)
			kept := f.seal().Checkpoint
			f.finish(10, 9+test.recent)
			// As if they came from a dump of a cluster far ahead of this one.
			f.forge(`update taskledger.event set xid = '9000000000'`)
			f.forge(`update taskledger.cursor set origin = '1/1', xid = '9000000000'`)
			if test.isForgotten {
				f.forge(`delete from taskledger.cursor`)
			}
			var origin *feed.OriginError
			if _, err := seal.Run(t.Context(), f.archiver, nil); !errors.As(err, &origin) {
				t.Errorf("sealing before the rebase: %v", err)
			}
			if _, err := seal.Verify(t.Context(), f.reader, nil); !errors.As(err, &origin) && !test.isForgotten {
				t.Errorf("verifying before the rebase: %v", err)
			}
			if _, err := feed.Rebase(t.Context(), f.forger, nil); err != nil {
				t.Fatal(err)
			}
			f.expect([]seal.Checkpoint{kept})
			f.finish(20, 20)
			if result := f.seal(); result.Sealed != int64(3*test.recent)+3 {
				t.Errorf("sealed %d events after the rebase, want %d", result.Sealed, 3*test.recent+3)
			}
			f.expect([]seal.Checkpoint{kept})
		})
	}
}

// Erasure keeps the seal valid. Afterwards neither the text nor the salt is there, so that no guess can be confirmed.
func TestErasure(t *testing.T) {
	f := newFixture(t)
	f.finish(1, 3)
	kept := f.seal().Checkpoint
	before := f.prove("coupon.send/2", kept)[0].Proof
	erase := `with salts as materialized (select taskledger.erase_salts('coupon.send', '2'))
		update taskledger.event e set data = null, meta = null, actor = null from salts where e.biz_id = '2'`
	f.forge(erase)
	report := f.verify(kept)
	if !report.IsValid() || report.Erased != 3 {
		t.Errorf("after the erasure: %+v", report)
	}
	after := f.prove("coupon.send/2", kept)[0].Proof
	if after.Event.Data != nil || len(after.Salt) != 32 {
		t.Errorf("the proof has data or a salt: %+v", after)
	}
	digest := before.Event.Digest(before.Salt)
	if diff := cmp.Diff(digest[:], after.Salt); diff != "" {
		t.Errorf("the digests of Go and SQL differ: %s", diff)
	}
	forged := *after
	forged.Event.Data = before.Event.Data
	if err := forged.Check(kept); !errors.Is(err, seal.ErrMismatch) {
		t.Errorf("a proof with the text and without the salt: %v", err)
	}
	if n := f.count(`select count(*) from taskledger.seal, unnest(salts) s where octet_length(s) = 16`); n != 6 {
		t.Errorf("%d salts are left, want those of the 6 other events", n)
	}
	f.forge(erase) // again
	f.expect([]seal.Checkpoint{kept})
	f.forge(`update taskledger.event set data = '{"percent":2}' where biz_id = '2' and version = 1`)
	f.expect(nil, "changed: coupon.send/2@1, position 4, leaf 3: the seal has a digest in place of the salt")
}

// An erasure while the seal is verified is no fault.
func TestErasureBesideVerification(t *testing.T) {
	f := newFixture(t)
	f.finish(1, 2)
	f.seal()
	f.finish(3, 4)
	kept := f.seal().Checkpoint
	report, err := seal.Verify(t.Context(), f.reader, &seal.VerifyOptions{
		Checkpoints: []seal.Checkpoint{kept},
		Progress: func(done, _ int64) { // the next batch has been read, and its events not yet
			if done == 6 {
				f.forge(`with salts as materialized (select taskledger.erase_salts('coupon.send', '4'))
					update taskledger.event set data = null, meta = null, actor = null from salts where biz_id = '4'`)
			}
		},
	})
	if err != nil || !report.IsValid() || report.Erased != 3 {
		t.Errorf("%+v, %v", report, err)
	}
}

// An erasure whose snapshot is older than a batch would leave the salts of that batch: it is refused.
func TestErasureNeedsReadCommitted(t *testing.T) {
	f := newFixture(t)
	f.finish(1, 1)
	tx, err := f.forger.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), "select count(*) from taskledger.event"); err != nil {
		t.Fatal(err)
	}
	f.seal()
	var n int64
	err = tx.QueryRow(t.Context(), "select taskledger.erase_salts('coupon.send', '1')").Scan(&n)
	if !pgerr.Is(err, "25001") {
		t.Errorf("%d salts were erased, %v", n, err)
	}
}

// The sealer waits for an erasure, so that it never seals a text that it has read before.
func TestSealerWaitsForErasure(t *testing.T) {
	f := newFixture(t)
	f.finish(1, 1)
	tx, err := f.forger.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	for _, sql := range []string{
		"set local session_replication_role = replica",
		"select taskledger.erase_salts('coupon.send', '1')",
		"update taskledger.event set data = null, meta = null, actor = null",
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := seal.Run(t.Context(), f.archiver, nil)
		done <- err
	}()
	for f.count(`select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%lock_seal%'
	              and datname = current_database()`) == 0 {
		select {
		case err := <-done:
			t.Fatalf("the sealer did not wait: %v", err)
		default:
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	f.expect(nil)
}

// A proof that was stored as JSON is checked without a database, and each change of it is found.
func TestProofOffline(t *testing.T) {
	f := newFixture(t)
	f.finish(1, 40)
	c := f.seal().Checkpoint
	text, err := json.Marshal(f.prove("coupon.send/17", c)[2].Proof)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := seal.ParseCheckpoints(c.String())
	if err != nil {
		t.Fatal(err)
	}
	p, err := seal.ParseProof(text)
	if err != nil || p.Check(kept[0]) != nil {
		t.Fatalf("%v, %v: %s", err, p.Check(kept[0]), text)
	}
	for name, change := range map[string][2]string{
		"the type":     {`"succeeded"`, `"failed"`},
		"the kind":     {`"coupon.send"`, `"coupon.sent"`},
		"the version":  {`"version":3`, `"version":4`},
		"the leaf":     {`"leaf":50`, `"leaf":51`},
		"the position": {`"position":51`, `"position":52`},
		"the salt":     {`"salt":"`, `"salt":"AAAA`},
		"the actor":    {`"actor":"`, `"actor":"eve, not `},
		"the size":     {`"size":120`, `"size":119`},
		"the root":     {`"root":"` + c.Root.String(), `"root":"` + tlog.RecordHash(nil).String()},
		"the origin":   {`"taskledger `, `"taskledger x`},
		"the time":     {`Z","login_id"`, `1Z","login_id"`},
	} {
		changed := strings.Replace(string(text), change[0], change[1], 1)
		p, err := seal.ParseProof([]byte(changed))
		if changed == string(text) || err != nil {
			t.Errorf("%s is not in %s: %v", name, text, err)
		} else if err := p.Check(kept[0]); !errors.Is(err, seal.ErrMismatch) {
			t.Errorf("%s is changed: %v", name, err)
		}
	}
	for name, more := range map[string]string{
		"a name that is unknown": strings.Replace(string(text), `"attempt"`, `"amount":5,"attempt"`, 1),
		"a name twice":           strings.Replace(string(text), `"actor"`, `"actor":"eve","actor"`, 1),
		"a name in capitals":     strings.Replace(string(text), `"actor"`, `"Actor":"eve","actor"`, 1),
		"more text":              string(text) + "{}",
	} {
		var invalid *ledger.InvalidError
		if _, err := seal.ParseProof([]byte(more)); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
