package systemtest

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"filippo.io/torchwood"
	f_note "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/witness/persistence/inmemory"
	"github.com/transparency-dev/witness/witness"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/seal/sealer"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A witness of others cosigns our checkpoints, and a library of others reads our log over HTTP: the checkpoint, its
// cosignature, and the tiles, from which it computes proofs.
func TestWitnessAndReaderOfOthers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	app := ledgertest.Pool(t)
	db := ledgertest.As(t, app, "archiver", "relay")
	newest, err := seal.Newest(ctx, db)
	if err != nil {
		t.Fatal(err)
	}
	secret, public, err := seal.NewKey(newest.Origin)
	if err != nil {
		t.Fatal(err)
	}
	logKey, err := note.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	server, witnessKey := startWitness(t, newest.Origin, logKey)

	dir := t.TempDir()
	file := sealer.File{KeyFile: filepath.Join(dir, "key"), Directory: filepath.Join(dir, "log"), Quorum: 1,
		Witnesses: []sealer.Witness{{URL: server, PublicKey: witnessKey}}}
	if err := os.WriteFile(file.KeyFile, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.FileServer(http.Dir(file.Directory)))
	t.Cleanup(web.Close)
	fetcher, err := torchwood.NewTileFetcher(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	var older tlog.Tree
	for round, n := range []int{3, 300, 700} {
		for i := range n {
			k := ledgertest.Key(t, "coupon.send/"+strconv.Itoa(round)+"-"+strconv.Itoa(i))
			ledgertest.Enqueue(t, app, k, `{}`)
		}
		if _, err := seal.Run(ctx, db, nil); err != nil {
			t.Fatal(err)
		}
		// Each call begins without memory: the witness refuses the size 0, and gets a proof from the size it knows.
		if err := sealer.Publish(ctx, sealer.Config{DB: db, File: file}); err != nil {
			t.Fatal(err)
		}
		older = readAsOthers(ctx, t, fetcher, logKey, witnessKey, older)
	}
	if older.N != 1003 {
		t.Errorf("the log has %d leaves, want 1,003", older.N)
	}
}

// startWitness starts the witness of transparency-dev, and returns its address and public key.
func startWitness(t *testing.T, origin string, logKey note.Verifier) (address, public string) {
	t.Helper()
	secret, _, err := note.GenerateKey(rand.Reader, "witness.example/test")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := f_note.NewSignerForCosignatureV1(secret)
	if err != nil {
		t.Fatal(err)
	}
	public, err = f_note.VKeyToCosignatureV1(publicOf(t, secret))
	if err != nil {
		t.Fatal(err)
	}
	w, err := witness.New(t.Context(), witness.Opts{
		Persistence: inmemory.New(), Signers: []note.Signer{signer},
		VerifierForLog: func(_ context.Context, of string) (note.Verifier, bool, error) {
			return logKey, of == origin, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /add-checkpoint", witness.NewHTTPHandler(w).AddCheckpoint)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL, public
}

// readAsOthers reads the log by torchwood, and compares it with an older tree.
func readAsOthers(
	ctx context.Context, t *testing.T, fetcher *torchwood.TileFetcher, logKey note.Verifier, witnessKey string,
	older tlog.Tree,
) tlog.Tree {
	t.Helper()
	text, err := fetcher.ReadEndpoint(ctx, "checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	cosigner, err := f_note.NewVerifierForCosignatureV1(witnessKey)
	if err != nil {
		t.Fatal(err)
	}
	n, err := note.Open(text, note.VerifierList(logKey, cosigner))
	if err != nil || len(n.Sigs) != 2 {
		t.Fatalf("others verify %+v: %v\n%s", n, err, text)
	}
	c, err := torchwood.ParseCheckpoint(n.Text)
	if err != nil {
		t.Fatal(err)
	}
	hashes := torchwood.TileHashReaderWithContext(ctx, c.Tree, fetcher)
	for _, leaf := range []int64{0, c.N / 2, c.N - 1} {
		if _, err := tlog.ProveRecord(c.N, leaf, hashes); err != nil {
			t.Errorf("leaf %d of %d: %v", leaf, c.N, err)
		}
	}
	if older.N > 0 {
		proof, err := tlog.ProveTree(c.N, older.N, hashes)
		if err != nil || tlog.CheckTree(proof, c.N, c.Hash, older.N, older.Hash) != nil {
			t.Errorf("%d leaves from %d: %v", c.N, older.N, err)
		}
	}
	return c.Tree
}

// publicOf returns the public key of a secret one.
func publicOf(t *testing.T, secret string) string {
	t.Helper()
	s, err := seal.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	return s.PublicKey()
}
