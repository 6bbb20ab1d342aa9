package sealer_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/seal/sealer"
)

// The tree and its newest checkpoint go to an object store as to a directory, here to the store of an archive. Partial
// tiles that no reader needs are removed.
func TestPublishToObjects(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	store := archive.Directory(t.TempDir())
	config := sealer.Config{DB: f.db, File: sealer.File{KeyFile: f.key, Directory: "s3://bucket/seal"},
		Open: func(place string) (seal.Objects, error) {
			if place != "s3://bucket/seal" {
				return nil, errors.New(place)
			}
			return store, nil
		}}
	log := seal.Log{Fetch: func(ctx context.Context, path string) ([]byte, error) {
		return store.Get(ctx, path, 0, -1)
	}}
	var last seal.Checkpoint
	for i, n := range []int{1, 2, 300, 5} {
		names := make([]string, n)
		for j := range names {
			names[j] = fmt.Sprintf("%d-%d", i, j)
		}
		f.enqueue(names...)
		want := f.seal()
		for range 2 { // the second call has nothing to do
			if err := sealer.Publish(t.Context(), config); err != nil {
				t.Fatal(err)
			}
		}
		c, _, err := log.Newest(t.Context(), seal.Policy{Key: f.public})
		if err != nil || c.Size != want.Size || c.Root != want.Root {
			t.Fatalf("%+v, want %+v: %v", c, want, err)
		}
		if err := log.ReadTree(t.Context(), c.Checkpoint); err != nil {
			t.Error(err)
		}
		if i > 0 {
			if err := log.Compare(t.Context(), last, c.Checkpoint); err != nil {
				t.Error(err)
			}
		}
		last = c.Checkpoint
	}
	names, err := store.List(t.Context(), "tile/0/")
	if want := "[tile/0/000 tile/0/001.p/52]"; err != nil || fmt.Sprint(names) != want {
		t.Errorf("tiles %v, want %s: %v", names, want, err)
	}

	// A tile of another tree is not replaced, and nothing is published after it.
	if err := store.Replace(t.Context(), "tile/0/001.p/53", []byte("x")); err != nil {
		t.Fatal(err)
	}
	f.enqueue("last")
	f.seal()
	if err := sealer.Publish(t.Context(), config); !errors.Is(err, seal.ErrInconsistent) {
		t.Errorf("publish next to a forged tile: %v", err)
	}
	if err := store.Delete(t.Context(), "checkpoint"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := log.Newest(t.Context(), seal.Policy{Key: f.public}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a checkpoint: %v", err)
	}
	config.Open = nil
	if err := sealer.Publish(t.Context(), config); err == nil || !strings.Contains(err.Error(), "Open is required") {
		t.Errorf("without Open: %v", err)
	}
}
