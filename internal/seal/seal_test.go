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

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
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
	_, err := seal.ProveTask(t.Context(), f.reader, seal.Archive{}, ledger.Key{}, 0, 1, later)
	if !errors.Is(err, seal.ErrNotSealed) {
		t.Errorf("a checkpoint that is newer than the ledger: %v", err)
	}
	later.Size--
	later.Root[0]++
	_, err = seal.ProveTask(t.Context(), f.reader, seal.Archive{}, ledger.Key{}, 0, 1, later)
	if !errors.Is(err, seal.ErrMismatch) {
		t.Errorf("a checkpoint of another tree: %v", err)
	}
}

// The tree equals package tlog's, for every number of leaves and every division into batches.
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
	for _, point := range []string{fault.SealBatch, fault.SealEnd} {
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

// After a restore the feed returns sealed events again. Each stays sealed once, and later events are sealed.
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
	if diff := difference.Of(digest[:], after.Salt); diff != "" {
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
	f.expect(nil, "changed: coupon.send/2@1, position 4, leaf 3: the seal contains a digest instead of a salt")
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
		"the origin":   {`"taskledger/`, `"taskledger/x`},
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
