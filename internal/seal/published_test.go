package seal_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
)

// cosigner signs as a witness, by the text of C2SP tlog-cosignature.
type cosigner struct {
	name string
	key  ed25519.PrivateKey
	at   time.Time
}

func newCosigner(t *testing.T, name string) *cosigner {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &cosigner{name: name, key: key, at: time.Unix(1_700_000_000, 0)}
}

func (c *cosigner) public() []byte { return append([]byte{4}, c.key.Public().(ed25519.PublicKey)...) }

func (c *cosigner) vkey() string {
	return fmt.Sprintf("%s+%08x+%s", c.name, c.KeyHash(), base64.StdEncoding.EncodeToString(c.public()))
}

func (c *cosigner) Name() string { return c.name }

func (c *cosigner) KeyHash() uint32 {
	sum := sha256.Sum256(append([]byte(c.name+"\n"), c.public()...))
	return binary.BigEndian.Uint32(sum[:])
}

func (c *cosigner) Sign(text []byte) ([]byte, error) {
	at := uint64(c.at.Unix())
	signature := ed25519.Sign(c.key, fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", at, text))
	return append(binary.BigEndian.AppendUint64(nil, at), signature...), nil
}

// lines returns the answer of the witness for a signed checkpoint.
func (c *cosigner) lines(t *testing.T, signed []byte) []byte {
	t.Helper()
	text, _, _ := strings.Cut(string(signed), "\n\n")
	all, err := note.Sign(&note.Note{Text: text + "\n"}, c)
	if err != nil {
		t.Fatal(err)
	}
	_, signatures, _ := strings.Cut(string(all), "\n\n")
	return []byte(signatures)
}

const origin = "taskledger/6f1ed002-ab5e-4e4c-9a4b-5d3f6b8f3c11"

func newSigner(t *testing.T, origin string) *seal.Signer {
	t.Helper()
	secret, public, err := seal.NewKey(origin)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := seal.NewSigner(secret)
	if err != nil || signer.PublicKey() != public {
		t.Fatalf("signer of %s, want %s: %v", signer.PublicKey(), public, err)
	}
	return signer
}

func sign(t *testing.T, s *seal.Signer, c seal.Checkpoint) []byte {
	t.Helper()
	signed, err := s.Sign(c)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// A signed checkpoint is read by package note, and each wrong, missing or changed signature is refused by its name.
func TestSignedCheckpoint(t *testing.T) {
	t.Parallel()
	c := seal.Checkpoint{Origin: origin, Size: 7, Root: tlog.RecordHash(nil)}
	signer, other := newSigner(t, origin), newSigner(t, origin)
	foreign := newSigner(t, "taskledger/another")
	signed := sign(t, signer, c)
	verifier, err := note.NewVerifier(signer.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := note.Open(signed, note.VerifierList(verifier)); err != nil || n.Text != c.String() {
		t.Errorf("package note reads %+v: %v", n, err)
	}
	if _, err := foreign.Sign(c); err == nil || !strings.Contains(err.Error(), "must be a key of this ledger") {
		t.Errorf("a key of another ledger has signed: %v", err)
	}
	after := newSigner(t, origin+"/after-restore")
	w1, w2 := newCosigner(t, "witness.example/1"), newCosigner(t, "witness.example/2")
	cosigned := seal.AddSignatures(signed, w1.lines(t, signed))
	witnesses := []string{w1.vkey(), w2.vkey()}
	for name, test := range map[string]struct {
		policy seal.Policy
		text   string
		want   string // "": valid
	}{
		"signed":           {policy: seal.Policy{Key: signer.PublicKey()}, text: string(signed)},
		"a log's own name": {policy: seal.Policy{Key: after.PublicKey()}, text: string(sign(t, after, c))},
		"one of two witnesses": {
			policy: seal.Policy{Key: signer.PublicKey(), Witnesses: witnesses, Quorum: 1}, text: string(cosigned),
		},
		"too few witnesses": {
			policy: seal.Policy{Key: signer.PublicKey(), Witnesses: witnesses, Quorum: 2}, text: string(cosigned),
			want: "1 of 2 required witnesses have cosigned",
		},
		"an unknown witness does not count": {
			policy: seal.Policy{Key: signer.PublicKey(), Witnesses: witnesses[1:], Quorum: 1}, text: string(cosigned),
			want: "0 of 1 required witnesses",
		},
		"a witness twice": {
			policy: seal.Policy{Key: signer.PublicKey(), Witnesses: witnesses, Quorum: 2},
			text:   string(append(cosigned, w1.lines(t, signed)...)), want: "1 of 2 required witnesses",
		},
		"the wrong key": {
			policy: seal.Policy{Key: other.PublicKey()}, text: string(signed), want: "has not signed; it is signed by",
		},
		"a checkpoint of another ledger": {
			policy: seal.Policy{Key: foreign.PublicKey()}, text: string(signed), want: "it is of the log " + origin,
		},
		"no signature": {
			policy: seal.Policy{Key: signer.PublicKey()}, text: c.String(), want: "is not signed",
		},
		"a changed size": {
			policy: seal.Policy{Key: signer.PublicKey()}, text: strings.Replace(string(signed), "\n7\n", "\n8\n", 1),
			want: "the signature of " + origin,
		},
		"only a witness": {
			policy: seal.Policy{Key: other.PublicKey(), Witnesses: witnesses, Quorum: 1}, text: string(cosigned),
			want: "has not signed; it is signed by",
		},
	} {
		v, err := test.policy.Open([]byte(test.text))
		switch {
		case test.want == "" && (err != nil || v.Size != c.Size || v.Root != c.Root):
			t.Errorf("%s: %+v, %v", name, v, err)
		case test.want != "" && (!errors.Is(err, seal.ErrSignature) || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
	v, err := seal.Policy{Key: signer.PublicKey(), Witnesses: witnesses, Quorum: 1}.Open(cosigned)
	if err != nil || !v.CosignedAt(1).Equal(w1.at) || v.Cosignatures[0].Witness != w1.name {
		t.Errorf("cosigned %+v, %v", v, err)
	}
	history := string(signed) + "\n" + string(cosigned) + "\n" + string(sign(t, other, c))
	if all, err := seal.ParseCheckpoints(history); err != nil || len(all) != 3 || all[2] != c {
		t.Errorf("a file of signed checkpoints: %+v, %v", all, err)
	}
	_, err = seal.Policy{Key: signer.PublicKey()}.OpenAll(history)
	if !errors.Is(err, seal.ErrSignature) || !strings.Contains(err.Error(), "line 14:") {
		t.Errorf("the third checkpoint of a file has another key: %v", err)
	}
}

// Keys that are wrong in any way are refused with the field, and the secret is not in the error.
func TestWrongKeys(t *testing.T) {
	t.Parallel()
	secret, public, err := seal.NewKey(origin)
	if err != nil {
		t.Fatal(err)
	}
	w := newCosigner(t, "witness.example/1")
	for name, err := range map[string]error{
		"an origin of no ledger":  second(third(seal.NewKey("example.com/log"))),
		"an origin with a space":  second(third(seal.NewKey(origin + "/a b"))),
		"a public as a secret":    errorOf(seal.NewSigner(public)),
		"a cut secret":            errorOf(seal.NewSigner(secret[:len(secret)-4])),
		"an empty secret":         errorOf(seal.NewSigner("")),
		"a secret as a public":    seal.Policy{Key: secret[:20]}.Validate(),
		"a log's key as witness":  seal.Policy{Key: public, Witnesses: []string{public}}.Validate(),
		"a witness's key as log":  seal.Policy{Key: w.vkey()}.Validate(),
		"a changed witness":       seal.Policy{Key: public, Witnesses: []string{"x" + w.vkey()}}.Validate(),
		"a witness twice":         seal.Policy{Key: public, Witnesses: []string{w.vkey(), w.vkey()}}.Validate(),
		"a quorum above them all": seal.Policy{Key: public, Witnesses: []string{w.vkey()}, Quorum: 2}.Validate(),
	} {
		var invalid *ledger.InvalidError
		if !errors.As(err, &invalid) || strings.Contains(err.Error(), secret[len(secret)-20:]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	external, err := seal.NewExternalSigner(public, func([]byte) ([]byte, error) { return make([]byte, 64), nil })
	if err != nil {
		t.Fatal(err)
	}
	c := seal.Checkpoint{Origin: origin, Size: 7}
	if _, err := external.Sign(c); err == nil || !strings.Contains(err.Error(), "is not valid for the key") {
		t.Errorf("a wrong signature of a signer command: %v", err)
	}
}

func third(_, _ string, err error) (string, error) { return "", err }

func second(_ string, err error) error { return err }

func errorOf(_ *seal.Signer, err error) error { return err }

// publish writes the tree and the signed checkpoint to a directory.
func (f *fixture) publish(d seal.Directory, s *seal.Signer, c seal.Checkpoint) []byte {
	f.t.Helper()
	signed := sign(f.t, s, c)
	err := d.WriteTiles(f.t.Context(), f.reader, seal.Archive{}, c)
	if err == nil {
		err = d.WriteCheckpoint(c, signed)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return signed
}

// tiles reads tiles as package tlog requires it, independently of this package's reader.
type tiles string

func (tiles) Height() int                     { return 8 }
func (tiles) SaveTiles([]tlog.Tile, [][]byte) {}
func (d tiles) path(t tlog.Tile) string       { return strings.Replace(t.Path(), "tile/8/", "tile/", 1) }
func (d tiles) ReadTiles(all []tlog.Tile) ([][]byte, error) {
	read := make([][]byte, len(all))
	for i, t := range all {
		data, err := os.ReadFile(filepath.Join(string(d), d.path(t)))
		if os.IsNotExist(err) && t.W < 256 {
			w := t.W
			t.W = 256
			data, err = os.ReadFile(filepath.Join(string(d), d.path(t)))
			data = data[:min(w*32, len(data))]
		}
		if err != nil {
			return nil, err
		}
		read[i] = data
	}
	return read, nil
}

// The directory contains the tree as tiles at each size: package tlog computes each proof from them, of earlier
// checkpoints too. It takes 32 bytes an event, plus a 255th.
func TestTiles(t *testing.T) {
	f := newFixture(t)
	d := seal.Directory(filepath.Join(t.TempDir(), "log"))
	var signer *seal.Signer
	var earlier []byte
	var kept []seal.Checkpoint
	for _, n := range []int{1, 5, 250, 1, 600, 65_000, 3} {
		f.fill(n)
		c := f.seal().Checkpoint
		if signer == nil {
			signer = newSigner(t, c.Origin)
		}
		policy := seal.Policy{Key: signer.PublicKey()}
		signed := f.publish(d, signer, c)
		f.publish(d, signer, c) // again, as after a restart
		o, err := seal.Log{Fetch: d.Fetch}.Observe(t.Context(), policy, earlier)
		if err != nil || o.Checkpoint != c {
			t.Fatalf("%d leaves: %+v, %v", c.Size, o, err)
		}
		earlier, kept = signed, append(kept, c)
		reader := tlog.TileHashReader(tlog.Tree{N: c.Size, Hash: c.Root}, tiles(d))
		for _, old := range kept {
			proof, err := tlog.ProveTree(c.Size, old.Size, reader)
			if err != nil || tlog.CheckTree(proof, c.Size, c.Root, old.Size, old.Root) != nil {
				t.Errorf("%d leaves from %d: %v", c.Size, old.Size, err)
			}
			if _, err := tlog.ProveRecord(c.Size, old.Size-1, reader); err != nil {
				t.Errorf("leaf %d of %d: %v", old.Size-1, c.Size, err)
			}
		}
	}
	last := kept[len(kept)-1]
	if err := (seal.Log{Fetch: d.Fetch}).ReadTree(t.Context(), last); err != nil {
		t.Error(err)
	}
	size, files := int64(0), 0
	err := filepath.Walk(string(d), func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			size, files = size+info.Size(), files+1
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	perEvent := float64(size) / float64(last.Size)
	t.Logf("%d bytes in %d files: %.2f bytes an event", size, files, perEvent)
	if most := last.Size/256 + last.Size/65536 + 12; perEvent > 33 || int64(files) > most {
		t.Errorf("%.2f bytes an event in %d files, want at most 33 in %d: partial tiles are left", perEvent, files,
			most)
	}
}

// Each damage of a published log is reported by its name.
func TestDamagedLog(t *testing.T) {
	f := newFixture(t)
	f.fill(700)
	first := f.seal().Checkpoint
	signer := newSigner(t, first.Origin)
	policy := seal.Policy{Key: signer.PublicKey()}
	f.fill(100)
	second := f.seal().Checkpoint
	forged := second
	forged.Root = tlog.RecordHash(nil)
	elsewhere := newFixture(t)
	elsewhere.fill(800)
	elsewhere.forge("update taskledger.event set data = '{}'")
	fork := elsewhere.seal().Checkpoint
	fork.Origin = second.Origin
	for name, test := range map[string]struct {
		damage  func(d seal.Directory) error
		earlier seal.Checkpoint
		is      error
		want    string
	}{
		"nothing": {earlier: first},
		"a truncated tile": {
			damage: func(d seal.Directory) error { return os.Truncate(string(d)+"/tile/0/002", 100) }, earlier: first,
			is: seal.ErrInconsistent, want: "tile/0/002 has 100 bytes, want 8192",
		},
		"a truncated partial tile": {
			damage: func(d seal.Directory) error { return os.Truncate(string(d)+"/tile/0/003.p/32", 32) },
			is:     seal.ErrInconsistent, want: "tile/0/003.p/32 has 32 bytes, want 1024",
		},
		"a tile that is missing": {
			damage: func(d seal.Directory) error { return os.Remove(string(d) + "/tile/0/002") }, earlier: first,
			want: "a tile cannot be read: tile/0/002",
		},
		"a tile that is changed": {
			damage: func(d seal.Directory) error {
				return os.WriteFile(string(d)+"/tile/0/002", make([]byte, 8192), 0o600)
			}, earlier: first,
			is: seal.ErrInconsistent,
		},
		"a log that went back": {
			damage:  func(d seal.Directory) error { return d.WriteCheckpoint(first, sign(t, signer, first)) },
			earlier: second, is: seal.ErrInconsistent, want: "it has 700 leaves, and the earlier one 800",
		},
		"another tree of the same size": {
			earlier: forged, is: seal.ErrInconsistent, want: "both have 800 leaves, and different hashes",
		},
		"another tree that is larger": {
			damage: func(d seal.Directory) error {
				if err := os.RemoveAll(string(d)); err != nil {
					return err
				}
				if err := d.WriteTiles(t.Context(), elsewhere.reader, seal.Archive{}, fork); err != nil {
					return err
				}
				return d.WriteCheckpoint(fork, sign(t, signer, fork))
			},
			earlier: first, is: seal.ErrInconsistent, want: "the first 700 of 800 leaves have another hash",
		},
		"no checkpoint": {
			damage: func(d seal.Directory) error { return os.Remove(string(d) + "/checkpoint") }, is: os.ErrNotExist,
			want: "read the checkpoint",
		},
		"a truncated checkpoint": {
			damage: func(d seal.Directory) error { return os.Truncate(string(d)+"/checkpoint", 60) },
			want:   "the third line of a checkpoint is a hash",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := seal.Directory(t.TempDir())
			f.publish(d, signer, second)
			if test.damage != nil {
				if err := test.damage(d); err != nil {
					t.Fatal(err)
				}
			}
			var earlier []byte
			if test.earlier.Size > 0 {
				earlier = sign(t, signer, test.earlier)
			}
			_, err := seal.Log{Fetch: d.Fetch}.Observe(t.Context(), policy, earlier)
			switch {
			case test.damage == nil && test.want == "" && err != nil:
				t.Error(err)
			case test.damage == nil && test.want == "":
			case err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want):
				t.Errorf("%v, want %v, %s", err, test.is, test.want)
			}
		})
	}
	d := seal.Directory(t.TempDir())
	f.publish(d, signer, second)
	if err := d.WriteTiles(t.Context(), f.reader, seal.Archive{}, first); !errors.Is(err, seal.ErrInconsistent) {
		t.Errorf("tiles of a smaller tree: %v", err)
	}
	other := seal.Directory(t.TempDir())
	elsewhere.publish(other, signer, fork)
	if err := os.Remove(string(other) + "/checkpoint"); err != nil {
		t.Fatal(err)
	}
	err := other.WriteTiles(t.Context(), f.reader, seal.Archive{}, second)
	if !errors.Is(err, seal.ErrInconsistent) || !strings.Contains(err.Error(), "is a tile of another tree") {
		t.Errorf("tiles of another tree: %v", err)
	}
}
