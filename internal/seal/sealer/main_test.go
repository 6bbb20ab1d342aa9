package sealer_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/longtest"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/seal/sealer"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Variables of a child process that publishes once.
const (
	childDatabase = "SEALER_TEST_DATABASE"
	childFile     = "SEALER_TEST_FILE"
)

func TestMain(m *testing.M) {
	url := os.Getenv(childDatabase)
	if url == "" {
		os.Exit(longtest.Run(m))
	}
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	var f sealer.File
	if err == nil {
		f, err = sealer.Parse([]byte(os.Getenv(childFile)))
	}
	if err == nil {
		err = sealer.Publish(ctx, sealer.Config{DB: pool, File: f})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// fixture is a ledger with a sealer's login and a key.
type fixture struct {
	t      *testing.T
	app    *pgxpool.Pool
	db     *pgxpool.Pool // of the sealer
	dir    string
	key    string // the file of the secret key
	public string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	app := ledgertest.Pool(t)
	f := &fixture{t: t, app: app, db: ledgertest.As(t, app, "archiver", "relay"), dir: t.TempDir()}
	f.key, f.public = f.newKey("")
	return f
}

// newKey writes a key of the ledger's log with a name.
func (f *fixture) newKey(name string) (file, public string) {
	f.t.Helper()
	c, err := seal.Newest(f.t.Context(), f.db)
	if err != nil {
		f.t.Fatal(err)
	}
	secret, public, err := seal.NewKey(c.Origin + name)
	if err != nil {
		f.t.Fatal(err)
	}
	file = filepath.Join(f.dir, "key"+strings.ReplaceAll(name, "/", "-"))
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return file, public
}

func (f *fixture) enqueue(names ...string) {
	f.t.Helper()
	for _, name := range names {
		ledgertest.Enqueue(f.t, f.app, ledgertest.Key(f.t, "coupon.send/"+name), `{}`)
	}
}

// seal seals all events.
func (f *fixture) seal() seal.Checkpoint {
	f.t.Helper()
	result, err := seal.Run(f.t.Context(), f.db, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return result.Checkpoint
}

// file returns a file that publishes to a directory below the fixture's.
func (f *fixture) file(name string) sealer.File {
	return sealer.File{KeyFile: f.key, Directory: filepath.Join(f.dir, name)}
}

func (f *fixture) publish(file sealer.File) error {
	f.t.Helper()
	return sealer.Publish(f.t.Context(), sealer.Config{DB: f.db, File: file, Logger: slog.New(slog.DiscardHandler)})
}

func (f *fixture) mustPublish(file sealer.File) {
	f.t.Helper()
	if err := f.publish(file); err != nil {
		f.t.Fatal(err)
	}
}

// observe verifies what was published to a directory.
func (f *fixture) observe(file sealer.File, p seal.Policy) seal.Observation {
	f.t.Helper()
	if p.Key == "" {
		p.Key = f.public
	}
	o, err := seal.Log{Fetch: seal.Directory(file.Directory).Fetch}.Observe(f.t.Context(), p, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return o
}

// witness is a server that keeps strictly to the text of C2SP tlog-witness.
type witness struct {
	*httptest.Server

	t      *testing.T
	name   string
	key    ed25519.PrivateKey
	log    note.Verifier // the key that it trusts
	origin string

	mu       sync.Mutex
	size     int64
	root     tlog.Hash
	statuses []int // of all answers
}

func newWitness(t *testing.T, name, logKey string) *witness {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{t: t, name: name, key: key}
	w.trust(logKey)
	w.Server = httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/add-checkpoint" {
			answer.WriteHeader(http.StatusBadRequest)
			return
		}
		status, text := w.add(string(body))
		w.mu.Lock()
		w.statuses = append(w.statuses, status)
		w.mu.Unlock()
		if status == http.StatusConflict {
			answer.Header().Set("Content-Type", "text/x.tlog.size")
		}
		answer.WriteHeader(status)
		_, _ = io.WriteString(answer, text)
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *witness) trust(logKey string) {
	w.t.Helper()
	v, err := note.NewVerifier(logKey)
	if err != nil {
		w.t.Fatal(err)
	}
	w.log, w.origin = v, v.Name()
}

func (w *witness) public() []byte { return append([]byte{4}, w.key.Public().(ed25519.PublicKey)...) }

func (w *witness) config() sealer.Witness {
	return sealer.Witness{URL: w.URL, PublicKey: fmt.Sprintf("%s+%08x+%s", w.name, w.KeyHash(),
		base64.StdEncoding.EncodeToString(w.public()))}
}

func (w *witness) Name() string { return w.name }

func (w *witness) KeyHash() uint32 {
	sum := sha256.Sum256(append([]byte(w.name+"\n"), w.public()...))
	return binary.BigEndian.Uint32(sum[:])
}

func (w *witness) Sign(text []byte) ([]byte, error) {
	at := uint64(time.Now().Unix())
	signature := ed25519.Sign(w.key, fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", at, text))
	return append(binary.BigEndian.AppendUint64(nil, at), signature...), nil
}

// add returns status and body of the answer to a request.
func (w *witness) add(body string) (int, string) {
	head, signed, ok := strings.Cut(body, "\n\n")
	lines := strings.Split(head, "\n")
	oldText, isOld := strings.CutPrefix(lines[0], "old ")
	old, err := strconv.ParseInt(oldText, 10, 64)
	if !ok || !isOld || err != nil || old < 0 || strconv.FormatInt(old, 10) != oldText || len(lines) > 64 {
		return http.StatusBadRequest, ""
	}
	proof := tlog.TreeProof{}
	for _, line := range lines[1:] {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			return http.StatusBadRequest, ""
		}
		proof = append(proof, hash)
	}
	origin, _, _ := strings.Cut(signed, "\n")
	if origin != w.origin {
		return http.StatusNotFound, ""
	}
	n, err := note.Open([]byte(signed), note.VerifierList(w.log))
	if err != nil {
		return http.StatusForbidden, ""
	}
	all, err := seal.ParseCheckpoints(n.Text)
	if err != nil || old > all[0].Size {
		return http.StatusBadRequest, ""
	}
	c := all[0]
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case old != w.size:
		return http.StatusConflict, strconv.FormatInt(w.size, 10) + "\n"
	case old == c.Size && old > 0 && (len(proof) > 0 || c.Root != w.root),
		old == 0 && len(proof) > 0,
		old > 0 && old < c.Size && tlog.CheckTree(proof, c.Size, c.Root, old, w.root) != nil:
		return http.StatusUnprocessableEntity, ""
	}
	w.size, w.root = c.Size, c.Root
	cosigned, err := note.Sign(&note.Note{Text: n.Text}, w)
	if err != nil {
		return http.StatusInternalServerError, ""
	}
	_, signatures, _ := strings.Cut(string(cosigned), "\n\n")
	return http.StatusOK, signatures
}

// answers returns the statuses of all answers since the last call.
func (w *witness) answers() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.statuses
	w.statuses = nil
	return all
}

func toJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
