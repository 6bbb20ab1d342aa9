package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/smalldisk"
	"github.com/taskledger/taskledger/ledger"
)

// manyEvents make some segments, because their data is random.
const manyEvents = 3_000

const origin = "taskledger/6f1ed002-ab5e-4e4c-9a4b-5d3f6b8f3c11"

func plan(n int) archive.Plan {
	return archive.Plan{Name: "test", Ledger: origin, Content: archive.Range, From: 1, To: ledger.Position(2 * n)}
}

// event returns event i, from 1: tasks have two events each, 500 tasks apart. Texts contain what JSON escapes.
func event(i int) *archive.Record {
	task, version := i, ledger.Version(1)
	if i > 500 && (i/500)%2 == 1 {
		task, version = i-500, 2
	}
	data := fmt.Sprintf("{\n\t\"text\": \"\\u00e9 <&> \u2028 %x\"}", rnd(i))
	actor := "alice \"\\\x01\x7f é"
	r := &archive.Record{Event: seal.Event{
		Position: ledger.Position(2 * i), Version: version,
		Key:  ledger.Key{Kind: "mail.send", BizID: ledger.BizID(fmt.Sprintf("m<%d>", task))},
		Type: "enqueued", LoginID: 3, Shard: 7, DataVersion: 1,
		RecordedAt: time.UnixMicro(1_800_000_000_000_000 + int64(i)*7).UTC(), Data: &data, Actor: &actor,
	}}
	if i%3 == 0 {
		run := int32(2)
		r.Run, r.Data = &run, nil
	}
	return r
}

// rnd returns bytes that do not compress.
func rnd(i int) []byte {
	x := uint64(i)*0x9e3779b97f4a7c15 + 1
	b := make([]byte, 0, 220)
	for len(b) < 220 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b = append(b, byte(x>>32))
	}
	return b
}

// write writes the events 1 to n, from the writer's place on.
func write(ctx context.Context, s archive.Store, n int) (archive.Manifest, error) {
	w, err := archive.Create(ctx, s, plan(n))
	if err != nil {
		return archive.Manifest{}, err
	}
	for i := int(w.Place().Last)/2 + 1; i <= n; i++ {
		if err := w.Add(ctx, event(i)); err != nil {
			return archive.Manifest{}, err
		}
	}
	return w.Close(ctx, &archive.CloseOptions{Logins: []archive.Login{{ID: 3, Name: "shop"}}})
}

// written returns an archive with n events.
func written(t *testing.T, n int) archive.Directory {
	t.Helper()
	dir := archive.Directory(filepath.Join(t.TempDir(), "archive"))
	if _, err := write(t.Context(), dir, n); err != nil {
		t.Fatal(err)
	}
	return dir
}

// expectWhole verifies an archive of n events, and reads all of them back.
func expectWhole(t *testing.T, s archive.Store, n int) {
	t.Helper()
	report, err := archive.Verify(t.Context(), s, nil)
	if err != nil || report.Events != int64(n) || report.Volumes != 1 {
		t.Fatalf("verify: %+v, %v", report, err)
	}
	r, err := archive.Open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	err = r.Range(t.Context(), 0, func(got archive.Record) error {
		i++
		if diff := difference.Of(*event(i), got); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	if err != nil || i != n {
		t.Errorf("%d events, %v", i, err)
	}
}

func TestWriteAndRead(t *testing.T) {
	dir := written(t, manyEvents)
	expectWhole(t, dir, manyEvents)
	r, err := archive.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	m := r.Manifests()[0]
	if len(m.Segments) < 2 || m.First != 2 || m.Last != 2*manyEvents || !m.Earliest.Equal(event(1).RecordedAt) ||
		!m.Latest.Equal(event(manyEvents).RecordedAt) {
		t.Errorf("%+v", m)
	}
	for _, i := range []int{1, 250, 501, manyEvents - 700, manyEvents - 500} {
		history, err := r.History(t.Context(), event(i).Key)
		if err != nil || len(history) != 2 || history[0].Version != 1 || history[1].Version != 2 {
			t.Errorf("history of event %d: %v, %v", i, history, err)
		}
	}
	if history, err := r.History(t.Context(), ledger.Key{Kind: "mail", BizID: "none"}); err != nil || history != nil {
		t.Errorf("history of an unknown task: %v, %v", history, err)
	}
	from := 0
	err = r.Range(t.Context(), manyEvents, func(r archive.Record) error {
		if from == 0 {
			from = int(r.Position)
		}
		return nil
	})
	if err != nil || from != manyEvents {
		t.Errorf("the range begins at %d, %v", from, err)
	}
}

// Others' programs decode a segment.
func TestSegmentIsZstd(t *testing.T) {
	dir := written(t, 300)
	names, err := filepath.Glob(filepath.Join(string(dir), "volumes", "test", "*.zst"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	data, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	d, err := zstd.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(d); err != nil || strings.Count(text.String(), "\n") != 300 {
		t.Errorf("%d lines, %v", strings.Count(text.String(), "\n"), err)
	}
}

// A writer that is killed at any step is continued: nothing is lost, nothing is there twice.
func TestKilledAtEachStep(t *testing.T) {
	for _, point := range []string{fault.ArchivePlan, fault.ArchiveSegment, fault.ArchiveRun, fault.ArchiveSummary,
		fault.ArchiveIndex, fault.ArchiveManifest, fault.ArchiveSegment + ":2", fault.ArchiveRun + ":2",
		fault.ArchiveSummary + ":2"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			dir := archive.Directory(filepath.Join(t.TempDir(), "archive"))
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), writtenArchive+"="+string(dir), fault.Variable+"="+point)
			if out, err := cmd.CombinedOutput(); err == nil || len(out) > 0 {
				t.Fatalf("the process was not killed: %v, %s", err, out)
			}
			isComplete := point == fault.ArchiveManifest
			unfinished, err := archive.Unfinished(t.Context(), dir)
			if err != nil || len(unfinished) == 1 == isComplete {
				t.Errorf("unfinished: %v, %v", unfinished, err)
			}
			if _, err := write(t.Context(), dir, manyEvents); errors.Is(err, archive.ErrExists) != isComplete ||
				err != nil && !isComplete {
				t.Fatal(err)
			}
			expectWhole(t, dir, manyEvents)
			names, err := dir.List(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if strings.Contains(name, "run-") || strings.HasSuffix(name, "0001.json") {
					t.Errorf("%s was left", name)
				}
			}
		})
	}
}

// Two writers of one volume do not mix their segments.
func TestTwoWriters(t *testing.T) {
	dir := archive.Directory(t.TempDir())
	var writers [2]*archive.Writer
	for i := range writers {
		var err error
		if writers[i], err = archive.Create(t.Context(), dir, plan(10)); err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 5+i; n++ {
			if err := writers[i].Add(t.Context(), event(n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := writers[0].Cut(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := writers[1].Cut(t.Context()); !errors.Is(err, archive.ErrExists) {
		t.Errorf("the second writer: %v", err)
	}
	if _, err := writers[0].Close(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	expectWhole(t, dir, 5)
}

func TestOtherPlan(t *testing.T) {
	dir := archive.Directory(t.TempDir())
	if _, err := archive.Create(t.Context(), dir, plan(10)); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Create(t.Context(), dir, plan(11)); !errors.Is(err, archive.ErrExists) {
		t.Errorf("a writer with another plan: %v", err)
	}
	if err := archive.Discard(t.Context(), dir, "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := write(t.Context(), dir, 11); err != nil {
		t.Error(err)
	}
	if err := archive.Discard(t.Context(), dir, "test"); !errors.Is(err, archive.ErrExists) {
		t.Errorf("a complete volume is discarded: %v", err)
	}
}

func TestInvalidEvents(t *testing.T) {
	w, err := archive.Create(t.Context(), archive.Directory(t.TempDir()), plan(10))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(t.Context(), event(5)); err != nil {
		t.Fatal(err)
	}
	var invalid *ledger.InvalidError
	for _, i := range []int{4, 5, 11} {
		if err := w.Add(t.Context(), event(i)); !errors.As(err, &invalid) {
			t.Errorf("event %d after 5: %v", i, err)
		}
	}
}

// Volumes of tasks overlap, and a task may be in a volume of a range, too. Each event is read once, in order.
func TestOverlappingVolumes(t *testing.T) {
	dir := archive.Directory(t.TempDir())
	volume := func(p archive.Plan, groups ...[]int) {
		w, err := archive.Create(t.Context(), dir, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range groups {
			for _, i := range group {
				if err := w.Add(t.Context(), event(i)); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Cut(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Close(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	tasks := archive.Plan{Name: "tasks-1", Ledger: origin, Content: archive.Tasks}
	volume(tasks, []int{2, 5, 9}, []int{1, 4, 7})
	tasks.Name = "tasks-2"
	volume(tasks, []int{3, 6, 10})
	volume(plan(10), []int{1, 2, 3, 8})
	if _, err := archive.Verify(t.Context(), dir, nil); err != nil {
		t.Fatal(err)
	}
	r, err := archive.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for from := 1; from <= 11; from++ {
		var got, want []int
		err := r.Range(t.Context(), ledger.Position(2*from), func(r archive.Record) error {
			got = append(got, int(r.Position)/2)
			return nil
		})
		for i := from; i <= 10; i++ {
			want = append(want, i)
		}
		if diff := difference.Of(want, got); diff != "" || err != nil {
			t.Errorf("from %d: %v\n%s", from, err, diff)
		}
	}
	if history, err := r.History(t.Context(), event(2).Key); err != nil || len(history) != 1 {
		t.Errorf("a task in two volumes: %v, %v", history, err)
	}
}

// Each damage is found, by the name of the file.
func TestDamagedFiles(t *testing.T) {
	whole := written(t, manyEvents)
	file := func(dir archive.Directory, pattern string) string {
		names, err := filepath.Glob(filepath.Join(string(dir), "volumes", "test", pattern))
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, names, err)
		}
		return names[0]
	}
	change := func(pattern string, edit func(data []byte) []byte) func(*testing.T, archive.Directory) {
		return func(t *testing.T, dir archive.Directory) {
			name := file(dir, pattern)
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, edit(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(pattern string) func(*testing.T, archive.Directory) {
		return func(t *testing.T, dir archive.Directory) {
			if err := os.Remove(file(dir, pattern)); err != nil {
				t.Fatal(err)
			}
		}
	}
	reordered := func(data []byte) []byte { // the first two lines exchanged
		decoder, err := zstd.NewReader(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer decoder.Close()
		text, err := decoder.DecodeAll(data, nil)
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.SplitAfterN(text, []byte("\n"), 3)
		encoder, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		return encoder.EncodeAll(lines[2], encoder.EncodeAll(append(bytes.Clone(lines[1]), lines[0]...), nil))
	}
	replace := func(from, to string) func([]byte) []byte {
		return func(data []byte) []byte {
			if !bytes.Contains(data, []byte(from)) {
				t.Errorf("no %q in the file", from)
			}
			return bytes.Replace(data, []byte(from), []byte(to), 1)
		}
	}
	for name, damage := range map[string]struct {
		do   func(*testing.T, archive.Directory)
		want string
	}{
		"segment truncated": {change("*.zst", func(d []byte) []byte { return d[:len(d)-100] }), "truncated"},
		"segment with one bit changed": {change("*.zst", func(d []byte) []byte {
			d[len(d)/2] ^= 1
			return d
		}), "segment-000001"},
		"events reordered": {change("*.zst", reordered), "position 2 follows position 4"},
		"segment extended": {change("*.zst", func(d []byte) []byte { return append(d, d...) }), "more than"},
		"segment missing":  {remove("*.zst"), "segment-000001"},
		"segments exchanged": {func(t *testing.T, dir archive.Directory) {
			one, two := file(dir, "segment-000001*.zst"), file(dir, "segment-000002*.zst")
			err := errors.Join(os.Rename(one, one+"x"), os.Rename(two, one), os.Rename(one+"x", two))
			if err != nil {
				t.Fatal(err)
			}
		}, "segment-000001"},
		"index truncated": {change("index*", func(d []byte) []byte { return d[:len(d)-28] }), "index-000001"},
		"index changed": {change("index*", func(d []byte) []byte {
			d[40] ^= 1
			return d
		}), "index-000001"},
		"index missing": {remove("index*"), "index-000001"},
		"manifest with another number": {change("manifest.json", replace(`"events": 3000`, `"events": 2999`)),
			"its segments have 3000 events"},
		"manifest with another range":   {change("manifest.json", replace(`"to": 6000`, `"to": 5999`)), "out of order"},
		"manifest with another version": {change("manifest.json", replace("archive v1", "archive v2")), "format"},
		"manifest with another member":  {change("manifest.json", replace(`"first"`, `"First"`)), "manifest.json"},
		"manifest of another volume": {
			change("manifest.json", replace(`"name": "test"`, `"name": "best"`)), `"best"`,
		},
		"manifest truncated": {
			change("manifest.json", func(d []byte) []byte { return d[:99] }), "manifest.json",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := archive.Directory(t.TempDir())
			if err := os.CopyFS(string(dir), os.DirFS(string(whole))); err != nil {
				t.Fatal(err)
			}
			damage.do(t, dir)
			_, err := archive.Verify(t.Context(), dir, nil)
			if err == nil || !strings.Contains(err.Error(), damage.want) {
				t.Errorf("verify returns %v, want %q", err, damage.want)
			}
			var of *archive.FileError
			if !errors.As(err, &of) && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%T", err)
			}
		})
	}
}

// Volumes of two ledgers in one archive are refused.
func TestOtherLedger(t *testing.T) {
	dir := written(t, 10)
	_, err := archive.Verify(t.Context(), dir, &archive.VerifyOptions{Ledger: "taskledger/other"})
	if err == nil || !strings.Contains(err.Error(), "it is of the ledger") {
		t.Errorf("%v", err)
	}
}

// A full disk fails the writer, and leaves nothing half written: with space again the same call finishes.
func TestFullDisk(t *testing.T) {
	const disk, file = 2 << 20, 1600 << 10
	dir := archive.Directory(smalldisk.Mount(t, disk))
	filler := filepath.Join(string(dir), "filler")
	if err := os.WriteFile(filler, make([]byte, file), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := write(t.Context(), dir, manyEvents); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk was not full: %v", err)
	}
	if unfinished, err := archive.Unfinished(t.Context(), dir); err != nil || len(unfinished) != 1 {
		t.Errorf("unfinished: %v, %v", unfinished, err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := write(t.Context(), dir, manyEvents); err != nil {
		t.Fatal(err)
	}
	expectWhole(t, dir, manyEvents)
}
