package systemtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/bucket"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/seal/sealer"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// s3Server is the address of an object store with the bucket "ledger", and credentials in the environment of AWS, for
// these tests. Default: a server in this process.
const s3Server = "TASKLEDGER_TEST_S3"

// openBucket returns a place in an object store that is empty.
func openBucket(t *testing.T) *bucket.Bucket {
	t.Helper()
	address := os.Getenv(s3Server)
	if address == "" {
		backend := s3mem.New()
		if err := backend.CreateBucket("ledger"); err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(gofakes3.New(backend).Server())
		t.Cleanup(server.Close)
		address = server.URL
		t.Setenv("AWS_ACCESS_KEY_ID", "test")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "testtest")
	}
	t.Setenv("AWS_ENDPOINT_URL", address)
	b, err := bucket.Open("s3://ledger/"+strings.ToLower(t.Name())+fmt.Sprint(os.Getpid()), os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// An object store keeps the contract of a store, as a directory does.
func TestStores(t *testing.T) {
	for _, s := range []archive.Store{openBucket(t), archive.Directory(t.TempDir())} {
		t.Run(fmt.Sprintf("%T", s), func(t *testing.T) { checkStore(t, s) })
	}
}

func checkStore(t *testing.T, s archive.Store) {
	ctx := t.Context()
	want := func(name, content string, offset, length int64) {
		t.Helper()
		if data, err := s.Get(ctx, name, offset, length); err != nil || string(data) != content {
			t.Errorf("%s from %d, %d bytes: %q, %v", name, offset, length, data, err)
		}
	}
	if err := s.Put(ctx, "a/b/c", []byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	want("a/b/c", "0123456789", 0, -1)
	want("a/b/c", "345", 3, 3)
	want("a/b/c", "89", 8, 5)
	want("a/b/c", "789", 7, -1)
	want("a/b/c", "", 10, 4)
	want("a/b/c", "", 2, 0)
	if err := s.Put(ctx, "a/b/c", []byte("other")); !errors.Is(err, archive.ErrExists) {
		t.Errorf("an object was put twice: %v", err)
	}
	want("a/b/c", "0123456789", 0, -1)
	if err := s.Replace(ctx, "a/b/c", []byte("new")); err != nil {
		t.Error(err)
	}
	want("a/b/c", "new", 0, -1)
	for _, length := range []int64{-1, 5} {
		if _, err := s.Get(ctx, "a/b", 0, length); err == nil {
			t.Error("a directory was read")
		}
		if _, err := s.Get(ctx, "a/none", 0, length); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a missing object: %v", err)
		}
	}
	large := bytes.Repeat([]byte("taskledger"), 1<<20)
	if err := s.Put(ctx, "a/large", large); err != nil {
		t.Error(err)
	}
	if data, err := s.Get(ctx, "a/large", 0, -1); err != nil || !bytes.Equal(data, large) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if err := s.Put(ctx, "ab", []byte("x")); err != nil {
		t.Error(err)
	}
	for prefix, want := range map[string]string{"": "[a/b/c a/large ab]", "a/": "[a/b/c a/large]", "a/b": "[a/b/c]",
		"none/": "[]"} {
		if names, err := s.List(ctx, prefix); err != nil || fmt.Sprint(names) != want {
			t.Errorf("names with %q: %v, %v", prefix, names, err)
		}
	}
	for _, name := range []string{"a/large", "a/large"} {
		if err := s.Delete(ctx, name); err != nil {
			t.Errorf("%s is removed: %v", name, err)
		}
	}
	var wg sync.WaitGroup
	results := make([]error, 8)
	for i := range results {
		wg.Go(func() { results[i] = s.Put(ctx, "race", []byte{byte(i)}) })
	}
	wg.Wait()
	won := 0
	for i, err := range results {
		switch {
		case err == nil:
			won++
			want("race", string([]byte{byte(i)}), 0, -1)
		case !errors.Is(err, archive.ErrExists):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d concurrent writers won", won, len(results))
	}
}

// Events are exported to an object store, verified there and imported from it.
func TestArchiveInABucket(t *testing.T) {
	b, app := openBucket(t), ledgertest.Pool(t)
	for i := range 20 {
		k := ledgertest.Key(t, fmt.Sprintf("coupon.send/%d", i))
		ledgertest.Enqueue(t, app, k, `{}`)
		ledgertest.Append(t, app, k, ledger.EventStarted, ledger.EventSucceeded)
	}
	if _, err := seal.Run(t.Context(), ledgertest.As(t, app, "archiver"), nil); err != nil {
		t.Fatal(err)
	}
	m, err := archive.Export(t.Context(), ledgertest.As(t, app, "reader"), b, nil)
	if err != nil || m.Events != 60 {
		t.Fatal(m, err)
	}
	if r, err := archive.Verify(t.Context(), b, nil); err != nil || r.Proved != 60 {
		t.Errorf("%+v, %v", r, err)
	}
	r, err := archive.Open(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	if h, err := r.History(t.Context(), ledgertest.Key(t, "coupon.send/7")); err != nil || len(h) != 3 {
		t.Errorf("%v, %v", h, err)
	}
	target := ledgertest.As(t, ledgertest.Pool(t), ledgertest.Owner)
	if done, err := archive.Import(t.Context(), target, b, nil); err != nil || done.Events != 60 {
		t.Errorf("%+v, %v", done, err)
	}
	ledgertest.Check(t, target)
	if err := b.Delete(t.Context(), "volumes/"+m.Name+"/"+m.Segments[0].File); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Verify(t.Context(), b, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing segment: %v", err)
	}
}

// The seal is published to an object store, and an auditor reads it there.
func TestSealInABucket(t *testing.T) {
	b, app := openBucket(t), ledgertest.Pool(t)
	ledgertest.Enqueue(t, app, ledgertest.Key(t, "coupon.send/1"), `{}`)
	db := ledgertest.As(t, app, "archiver", "relay")
	sealed, err := seal.Run(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	secret, public, err := seal.NewKey(sealed.Checkpoint.Origin)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	c := sealer.Config{DB: db, File: sealer.File{KeyFile: key, Directory: b.String()},
		Open: func(place string) (seal.Objects, error) { return bucket.Open(place, os.Getenv) }}
	if err := sealer.Publish(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	log := seal.Log{Fetch: func(ctx context.Context, path string) ([]byte, error) { return b.Get(ctx, path, 0, -1) }}
	newest, _, err := log.Newest(t.Context(), seal.Policy{Key: public})
	if err == nil {
		err = log.ReadTree(t.Context(), newest.Checkpoint)
	}
	if err != nil || newest.Size != 1 {
		t.Errorf("%+v, %v", newest, err)
	}
}

func TestInvalidPlacesOfBuckets(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL", "")
	for _, place := range []string{"s3://", "s3:///a", "s3://a/../b", "https://a/b", "s3://a/b//c"} {
		var invalid *ledger.InvalidError
		if _, err := bucket.Open(place, os.Getenv); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", place, err)
		}
	}
	t.Setenv("AWS_ENDPOINT_URL", "localhost")
	if _, err := bucket.Open("s3://a/b", os.Getenv); err == nil {
		t.Error("an endpoint without a scheme is accepted")
	}
}
