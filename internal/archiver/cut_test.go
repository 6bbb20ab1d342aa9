package archiver_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/erasure"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// cancel records many tasks that were cancelled, two events each.
func (f *fixture) cancel(prefix string, n int) {
	f.T.Helper()
	ledgertest.ExecAsOwner(f.T, f.DB, fmt.Sprintf(`
		insert into taskledger.event (version, attempt, type, shard, kind, biz_id, data)
		select v.version, 0, v.type::taskledger.event_type, taskledger.shard_of('%[1]s-' || i), '%[2]s', '%[1]s-' || i,
		       case when v.version = 1 then '{"text":"secret"}'::json end
		  from generate_series(1, %[3]d) i cross join (values (1, 'enqueued'), (2, 'cancelled')) v(version, type)
		 order by i, v.version`, prefix, kind, n))
}

// forge executes what only the owner may do, without the triggers.
func (f *fixture) forge(sql string) {
	f.T.Helper()
	ledgertest.ExecAsOwner(f.T, f.DB, "set local session_replication_role = replica; "+sql)
}

func (f *fixture) seal() seal.Checkpoint {
	f.T.Helper()
	return servicetest.Try(seal.Run(f.Context(), f.As("archiver"), nil))(f.T).Checkpoint
}

// cutFixture is a sealed ledger with a task that has not ended in the first rows of its seal.
type cutFixture struct {
	*fixture

	place string
	kept  []seal.Checkpoint
	rows  string // of the seal
}

// newCutFixture seals 1,004 events in three rows, and then two events in a row that stays.
func newCutFixture(t *testing.T) *cutFixture {
	t.Helper()
	f := &cutFixture{fixture: newFixture(t), place: filepath.Join(t.TempDir(), "archive")}
	f.cancel("a", 200)
	ledgertest.Enqueue(t, f.DB, key("waits"), `{"text":"secret"}`)
	f.kept = append(f.kept, f.seal())
	f.cancel("b", 200)
	ledgertest.Enqueue(t, f.DB, key("dead"), `{"text":"secret"}`)
	ledgertest.Append(t, f.DB, key("dead"), ledger.EventStarted, ledger.EventBuried)
	f.kept = append(f.kept, f.seal())
	f.cancel("c", 100)
	f.kept = append(f.kept, f.seal())
	f.cancel("d", 1)
	f.kept = append(f.kept, f.seal())
	f.rows = f.text(`select string_agg(batch::text, ' ' order by batch) from taskledger.seal`)
	return f
}

func (f *cutFixture) files() archiver.Files {
	return archiver.In(f.As("archiver"), archive.Directory(f.place), f.place)
}

// wantRows compares the numbers of the rows of the seal.
func (f *cutFixture) wantRows(want string) {
	f.T.Helper()
	f.want("rows of the seal", f.text(`select string_agg(batch::text, ' ' order by batch) from taskledger.seal`), want)
}

// verify verifies the seal with all checkpoints that were kept.
func (f *cutFixture) verify(a seal.Archive) seal.Report {
	f.T.Helper()
	return servicetest.Try(seal.Verify(f.Context(), f.As("reader"), &seal.VerifyOptions{Checkpoints: f.kept,
		Archive: a}))(f.T)
}

// wantValid verifies the seal, the archive, and proofs of the task that has not ended for each checkpoint.
func (f *cutFixture) wantValid() {
	f.T.Helper()
	if r := f.verify(seal.Archive{}); !r.IsValid() || len(r.Unchecked) > 0 || len(r.Comparisons) != len(f.kept) ||
		r.Checkpoint != f.kept[len(f.kept)-1] {
		f.T.Errorf("%+v", r)
	}
	for _, c := range f.kept {
		events, err := seal.ProveTask(f.Context(), f.As("reader"), seal.Archive{}, key("waits"), 0, 1, c)
		if err != nil || len(events) != 1 || events[0].Proof == nil || events[0].Proof.Check(c) != nil {
			f.T.Errorf("proof for %d leaves: %v, %+v", c.Size, err, events)
		}
		if err := seal.CheckPrefix(f.Context(), f.As("reader"), seal.Archive{}, c); err != nil {
			f.T.Error(err)
		}
	}
	r, err := archive.Verify(f.Context(), archive.Directory(f.place), &archive.VerifyOptions{Checkpoints: f.kept[:3]})
	if err != nil || r.Unproved > 0 || r.Proved == 0 {
		f.T.Errorf("archive: %+v, %v", r, err)
	}
}

// Rows of the seal are removed once the archive contains their tiles. Verification, proofs, the sealer, erasure and
// exports read the tiles then.
func TestSealIsCut(t *testing.T) {
	t.Parallel()
	f := newCutFixture(t)
	f.want("rows", f.rows, "1 2 3 4")
	before := f.text(`select sum(pg_column_size(s.*))::text from taskledger.seal s`)
	f.archiveTo(f.place)
	f.wantRows("4")
	f.want("rest", f.text(`select string_agg(leaf::text, ' ' order by leaf) from taskledger.seal_rest`),
		"400 801 802 803")
	f.want("record", f.text(`select data->>'detail' from taskledger.event
		where kind = 'taskledger.operation' and data->>'action' = 'archive.seal'`),
		fmt.Sprintf(`{"leaves":"1004","until":"1004","file":%q}`, f.place))
	rest, edge := f.text(`select sum(pg_column_size(r.*))::text from taskledger.seal_rest r`),
		f.text(`select pg_column_size(c.*)::text from taskledger.seal_cut c`)
	t.Logf("seal: %s bytes of 1,006 leaves before; after: rest %s, edge %s", before, rest, edge)
	f.wantValid()

	if _, err := erasure.Erase(t.Context(), f.As("archiver"), erasure.Options{Reason: "request",
		Keys: []ledger.Key{key("dead"), key("a-7")}, Open: openDirectory}); err != nil {
		t.Fatal(err)
	}
	f.want("salts", f.text(`select string_agg(octet_length(salt)::text, ' ' order by leaf) from taskledger.seal_rest`),
		"16 32 32 32")
	f.kept = append(f.kept, f.seal())
	f.wantValid()
	if r := f.verify(seal.Archive{}); r.Erased == 0 {
		t.Errorf("%+v", r)
	}
	proof := servicetest.Try(seal.ProveConsistency(t.Context(), f.As("reader"), seal.Archive{}, f.kept[0].Size,
		f.kept[3].Size))(t)
	newer, older := f.kept[3], f.kept[0]
	if err := tlog.CheckTree(proof, newer.Size, newer.Root, older.Size, older.Root); err != nil {
		t.Error(err)
	}
	published := seal.Directory(t.TempDir())
	if err := published.WriteTiles(t.Context(), f.As("reader"), seal.Archive{}, f.kept[3]); err != nil {
		t.Fatal(err)
	}
	if err := (seal.Log{Fetch: published.Fetch}).ReadTree(t.Context(), f.kept[3]); err != nil {
		t.Error(err)
	}

	f.cancel("e", 300)
	f.kept = append(f.kept, f.seal())
	f.cancel("f", 1)
	f.kept = append(f.kept, f.seal())
	f.archiveTo(f.place)
	f.wantRows("7")
	f.wantValid()
}

// A run that is killed around a removal from the seal is run again, and finishes.
func TestKilledWhileTheSealIsCut(t *testing.T) {
	t.Parallel()
	for _, point := range []string{fault.ArchiveTilesRead, fault.ArchiveCut} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			f := newCutFixture(t)
			f.Project()
			f.SpawnAs("archiver", f.place, point).AwaitKilled(t)
			f.wantValid()
			if _, err := archiver.Run(t.Context(), f.As("archiver"), archiver.Options{Files: f.files()}); err != nil {
				t.Fatal(err)
			}
			f.wantRows("4")
			f.wantValid()
		})
	}
}

// Two archivers remove each row of the seal once.
func TestTwoArchiversCutTheSeal(t *testing.T) {
	t.Parallel()
	f := newCutFixture(t)
	f.Project()
	f.SpawnAs("archiver", f.place, fault.ArchiveTilesRead).AwaitKilled(t)
	var running sync.WaitGroup
	leaves, faults := make([]int64, 2), make([]error, 2)
	for i := range 2 {
		running.Go(func() {
			r, err := archiver.Run(t.Context(), f.As("archiver"), archiver.Options{Files: f.files()})
			leaves[i], faults[i] = r.Leaves, err
		})
	}
	running.Wait()
	if err := errors.Join(faults...); err != nil || leaves[0]+leaves[1] != 1004 {
		t.Errorf("%v leaves, %v", leaves, err)
	}
	f.want("removed", f.text(`select coalesce(sum((data->'detail'->>'leaves')::bigint), 0)::text from taskledger.event
		where kind = 'taskledger.operation' and data->>'action' = 'archive.seal'`), "1004")
	f.wantRows("4")
	f.wantValid()
}

// Without files, and while most events are in the tables, the rows of the seal stay.
func TestSealIsNotCut(t *testing.T) {
	t.Parallel()
	f := newCutFixture(t)
	if r := f.archive(); r.Tasks == 0 || r.Leaves != 0 {
		t.Errorf("without files: %+v", r)
	}
	f.wantRows("1 2 3 4")
	g := newCutFixture(t)
	g.Project()
	r, err := archiver.Run(t.Context(), g.As("archiver"), archiver.Options{Files: g.files(), Kinds: []ledger.Kind{"x"}})
	if err != nil || r.Leaves != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	g.wantRows("1 2 3 4")
}

// A missing, truncated or foreign tile removes nothing, and the error names the tile. After the removal, verification
// reports which leaves it could not verify, and names the archive.
func TestDamagedTiles(t *testing.T) {
	t.Parallel()
	f := newCutFixture(t)
	f.Project()
	f.SpawnAs("archiver", f.place, fault.ArchiveTilesRead).AwaitKilled(t)
	tile := filepath.Join(f.place, "tile", "0", "001")
	whole := servicetest.Try(os.ReadFile(tile))(t)
	other := []byte(strings.Repeat("x", len(whole)))
	damage := map[string]func() error{
		"no such file":             func() error { return os.Remove(tile) },
		"has 100 bytes, want 8192": func() error { return os.WriteFile(tile, whole[:100], 0o600) },
		"inconsistent":             func() error { return os.WriteFile(tile, other, 0o600) },
	}
	for want, do := range damage {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		_, err := archiver.Run(t.Context(), f.As("archiver"), archiver.Options{Files: f.files()})
		if unread := (*seal.TilesError)(nil); !errors.As(err, &unread) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), f.place) {
			t.Errorf("%s: %v", want, err)
		}
		f.wantRows(f.rows)
	}
	restore := func() {
		t.Helper()
		if err := os.WriteFile(tile, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	restore()
	if _, err := archiver.Run(t.Context(), f.As("archiver"), archiver.Options{Files: f.files()}); err != nil {
		t.Fatal(err)
	}
	f.wantRows("4")
	for want, do := range damage {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		r := f.verify(seal.Archive{})
		if want == "no such file" {
			if !r.IsValid() || len(r.Unchecked) != 1 || r.Unchecked[0].First != 256 || r.Unchecked[0].Last != 511 ||
				r.Unchecked[0].Place != f.place || r.Comparisons[0].Unchecked == "" ||
				r.Comparisons[3].Unchecked != "" {
				t.Errorf("%+v", r)
			}
		} else if r.IsValid() || !strings.Contains(r.Faults[0].Detail, want) {
			t.Errorf("%s: %+v", want, r)
		}
	}
	restore()
	f.wantValid()

	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.Rename(f.place, copied); err != nil {
		t.Fatal(err)
	}
	r := f.verify(seal.Archive{})
	if !r.IsValid() || len(r.Unchecked) != 1 || r.Unchecked[0].First != 0 || r.Unchecked[0].Last != 767 {
		t.Errorf("%+v", r)
	}
	_, err := seal.ProveTask(t.Context(), f.As("reader"), seal.Archive{}, key("waits"), 0, 1, f.kept[3])
	if unread := (*seal.TilesError)(nil); !errors.As(err, &unread) || !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	f.cancel("e", 1)
	f.kept = append(f.kept, f.seal()) // the sealer needs no archive
	if r := f.verify(seal.Archive{Place: copied}); !r.IsValid() || len(r.Unchecked) > 0 {
		t.Errorf("from the copy: %+v", r)
	}
}

// An owner who changes an event, a salt or the cut itself is detected after the removal.
func TestForgedCut(t *testing.T) {
	t.Parallel()
	f := newCutFixture(t)
	f.archiveTo(f.place)
	f.kept = append(f.kept, f.seal())
	for _, forgery := range []struct{ do, undo string }{
		{`update taskledger.event set data = '{"text":"other"}' where biz_id = 'waits'`,
			`update taskledger.event set data = '{"text":"secret"}' where biz_id = 'waits'`},
		{`update taskledger.seal_rest set leaf = leaf + 5`, `update taskledger.seal_rest set leaf = leaf - 5`},
		{`update taskledger.seal_cut set edge = overlay(edge placing '\x0000000000' from 40)`, ``},
		{`update taskledger.seal_cut set positions_xor = positions_xor # 8`,
			`update taskledger.seal_cut set positions_xor = positions_xor # 8`},
		{`update taskledger.event set version = 3 where biz_id = 'waits'`,
			`update taskledger.event set version = 1 where biz_id = 'waits'`},
		{`delete from taskledger.seal_cut`, ``},
	} {
		saved := f.text(`select to_json(c)::text from taskledger.seal_cut c`)
		f.forge(forgery.do)
		if r := f.verify(seal.Archive{}); r.IsValid() {
			t.Errorf("not detected: %s", forgery.do)
		}
		if forgery.undo == "" {
			forgery.undo = `delete from taskledger.seal_cut; insert into taskledger.seal_cut
				select * from json_populate_record(null::taskledger.seal_cut, '` + saved + `'::json)`
		}
		f.forge(forgery.undo)
		if r := f.verify(seal.Archive{}); !r.IsValid() {
			t.Errorf("after %s: %+v", forgery.undo, r)
		}
	}
	if _, err := f.As(ledgertest.Owner).Exec(t.Context(), `delete from taskledger.seal`); err == nil {
		t.Error("the owner has removed rows of the seal")
	}
}

// A ledger that was restored from before the removal has its rows again, and removes them again.
func TestSealIsRestoredFromBeforeTheCut(t *testing.T) {
	t.Parallel()
	f := newCutFixture(t)
	f.forge(`create table public.kept_seal as select * from taskledger.seal`)
	f.archiveTo(f.place)
	f.wantRows("4")
	f.forge(`insert into taskledger.seal select * from public.kept_seal where batch < 4;
		delete from taskledger.seal_cut; delete from taskledger.seal_rest`)
	f.wantValid()
	if _, err := archiver.Run(t.Context(), f.As("archiver"), archiver.Options{Files: f.files()}); err != nil {
		t.Fatal(err)
	}
	f.wantRows("4")
	f.wantValid()
}

// A verification during removals reports no fault.
func TestVerifyWhileTheSealIsCut(t *testing.T) {
	t.Parallel()
	f := newCutFixture(t)
	f.archiveTo(f.place)
	done := make(chan error, 1)
	go func() {
		for i := range 5 {
			f.cancel("x"+strconv.Itoa(i), 50)
			f.seal()
			f.archiveTo(f.place)
		}
		done <- nil
	}()
	for isDone := false; !isDone; {
		select {
		case <-done:
			isDone = true
		default:
		}
		if r := f.verify(seal.Archive{}); !r.IsValid() || len(r.Unchecked) > 0 {
			t.Fatalf("%+v", r)
		}
	}
}
