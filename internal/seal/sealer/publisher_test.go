package sealer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/seal/sealer"
	"github.com/taskledger/taskledger/internal/smalldisk"
	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/webhook"
)

// A checkpoint goes to each receiver, once, and the next one after new events.
func TestPublish(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	secretFile := filepath.Join(f.dir, "secret")
	if err := os.WriteFile(secretFile, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var received []string
	hook := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if _, err := webhook.Verify(r.Header, body, secret); err != nil {
			answer.WriteHeader(http.StatusUnauthorized)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		received = append(received, string(body))
	}))
	t.Cleanup(hook.Close)
	var subjects []string
	file := f.file("log")
	file.Path = filepath.Join(f.dir, "checkpoints")
	file.Subject = "checkpoint.orders"
	file.Webhooks = []webhooks.Endpoint{{URL: hook.URL, SecretFile: secretFile,
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}
	publish := func() {
		t.Helper()
		err := sealer.Publish(t.Context(), sealer.Config{DB: f.db, File: file,
			Publish: func(_ context.Context, subject string, text []byte) error {
				subjects = append(subjects, subject+" "+string(text))
				return nil
			}})
		if err != nil {
			t.Fatal(err)
		}
	}
	publish() // nothing is sealed
	f.enqueue("1", "2")
	first := f.seal()
	publish()
	f.enqueue("3")
	second := f.seal()
	publish()
	if o := f.observe(file, seal.Policy{}); o.Checkpoint != second {
		t.Errorf("the directory has %+v, want %+v", o.Checkpoint, second)
	}
	text, err := os.ReadFile(file.Path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := seal.Policy{Key: f.public}.OpenAll(string(text))
	if err != nil || len(all) != 2 || all[0].Checkpoint != first || all[1].Checkpoint != second {
		t.Errorf("the file has %+v, %v", all, err)
	}
	publish() // again, as after a restart: the file has it already
	if again, err := os.ReadFile(file.Path); err != nil || string(again) != string(text) {
		t.Errorf("the file has grown to %s: %v", again, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(received) < 2 || !strings.Contains(received[0], `"type":"taskledger.checkpoint"`) ||
		!strings.Contains(received[1], fmt.Sprintf(`"size":%d`, second.Size)) {
		t.Errorf("the webhook got %s", received)
	}
	if len(subjects) < 2 || !strings.HasPrefix(subjects[1], "checkpoint.orders "+second.String()) {
		t.Errorf("the subject got %s", subjects)
	}
}

// A ledger that does not contain what was published publishes nothing more, and the error names the cure.
func TestRefusals(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue("1", "2", "3")
	f.seal()
	file := f.file("log")
	f.mustPublish(file)
	before, err := os.ReadFile(filepath.Join(file.Directory, "checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	restore := func(events int) { // as a backup that has only the first events, and whose later ones are others
		t.Helper()
		ledgertest.ExecAsOwner(t, f.db, fmt.Sprintf(`set session_replication_role = replica;
			truncate taskledger.seal;
			delete from taskledger.cursor where reader = 'seal';
			delete from taskledger.event where position > %d`, events))
	}
	named, _ := f.newKey("/2")
	other := newFixture(t)
	ledgertest.ExecAsOwner(t, other.db, // databases of tests are copies of one
		"update taskledger.setting set value = gen_random_uuid()::text where name = 'installation'")
	other.key, other.public = other.newKey("")
	other.enqueue("1")
	other.seal()
	check := func(name string, file sealer.File, of *fixture, is error, want string) {
		t.Helper()
		err := of.publish(file)
		if err == nil || is != nil && !errors.Is(err, is) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
		after, err := os.ReadFile(filepath.Join(file.Directory, "checkpoint"))
		if err == nil && string(after) != string(before) {
			t.Errorf("%s: the checkpoint was replaced by %s", name, after)
		}
	}
	wrong := file
	wrong.KeyFile = named
	f.enqueue("4")
	f.seal()
	check("a key of another log", wrong, f, nil, "it contains the log ")
	foreign := other.file("log")
	foreign.KeyFile = f.key
	check("a key of another ledger", foreign, other, nil, "must be a key of this ledger")
	foreign = other.file("log")
	foreign.Directory = file.Directory
	check("a directory of another ledger", foreign, other, nil, "it contains the log ")
	restore(2)
	f.seal()
	check("a database restored from before a checkpoint", file, f, seal.ErrNotSealed,
		"if the database was restored from an older backup")
	f.enqueue("5", "6", "7", "8")
	f.seal()
	check("the same, with more events since", file, f, seal.ErrMismatch, "taskledger seal --make-key FILE --name")
	fresh := f.file("log-2") // the cure
	fresh.KeyFile = named
	f.mustPublish(fresh)
}

// Checkpoints are cosigned by witnesses, over restarts of the sealer; too few, and nothing is published.
func TestWitnesses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	w1, w2, w3 := newWitness(t, "w.example/1", f.public), newWitness(t, "w.example/2", f.public),
		newWitness(t, "w.example/3", f.public)
	w3.Close() // unavailable
	file := f.file("log")
	file.Witnesses = []sealer.Witness{w1.config(), w2.config(), w3.config()}
	file.Quorum = 2
	policy := seal.Policy{Key: f.public, Quorum: 2,
		Witnesses: []string{w1.config().PublicKey, w2.config().PublicKey, w3.config().PublicKey}}
	f.enqueue("1", "2", "3")
	f.seal()
	if err := f.publish(file); err == nil || !strings.Contains(err.Error(), w3.URL) {
		t.Errorf("a witness is unavailable: %v", err)
	}
	if o := f.observe(file, policy); len(o.Cosignatures) != 2 {
		t.Errorf("%d cosignatures, want 2", len(o.Cosignatures))
	}
	for range 3 { // each call begins without memory, and learns the size from the conflict
		f.enqueue(fmt.Sprint("more", f.seal().Size))
		f.seal()
		_ = f.publish(file)
	}
	if o := f.observe(file, policy); o.Size != 6 {
		t.Errorf("the directory has %d leaves, want 6", o.Size)
	}
	if diff := difference.Of([]int{200, 409, 200, 409, 200, 409, 200}, w1.answers()); diff != "" {
		t.Error(diff)
	}
	file.Quorum = 3
	f.enqueue("7")
	f.seal()
	if err := f.publish(file); !errors.Is(err, seal.ErrSignature) || !strings.Contains(err.Error(), "2 of 3 required") {
		t.Errorf("too few witnesses: %v", err)
	}
	if o := f.observe(file, policy); o.Size != 6 {
		t.Errorf("a checkpoint without enough cosignatures was published: %d leaves", o.Size)
	}
}

// Each refusal of a witness is reported with its cause and the cure.
func TestWitnessRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(f *fixture, w *witness, c *sealer.Witness)
		want    string
	}{
		"it does not know the log": {
			prepare: func(f *fixture, w *witness, _ *sealer.Witness) { w.origin = "another" },
			want:    "it does not know the log taskledger/",
		},
		"it trusts another key": {
			prepare: func(f *fixture, w *witness, _ *sealer.Witness) {
				_, public := f.newKey("")
				w.trust(public)
			},
			want: "",
		},
		"it has cosigned a larger tree": {
			prepare: func(_ *fixture, w *witness, _ *sealer.Witness) { w.size = 100 },
			want:    "it has cosigned a tree of 100 leaves, this one has 3: the database was restored",
		},
		"it has cosigned another tree": {
			prepare: func(_ *fixture, w *witness, _ *sealer.Witness) { w.size = 2 },
			want:    "it has cosigned another tree of 2 leaves",
		},
		"another key than the configured one signs": {
			prepare: func(f *fixture, _ *witness, c *sealer.Witness) {
				c.PublicKey = newWitness(f.t, "w.example/other", f.public).config().PublicKey
			},
			want: "0 of 1 required witnesses have cosigned",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.enqueue("1", "2", "3")
			f.seal()
			w := newWitness(t, "w.example/1", f.public)
			config := w.config()
			file := f.file("log")
			test.prepare(f, w, &config)
			if test.want == "" { // the key file has been replaced, and the witness trusts the new key: replace it back
				test.want = "it does not trust the key"
				f.key, _ = f.newKey("")
				file.KeyFile = f.key
			}
			file.Witnesses, file.Quorum = []sealer.Witness{config}, 1
			if err := f.publish(file); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
			if _, err := os.Stat(filepath.Join(file.Directory, "checkpoint")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a checkpoint was published: %v", err)
			}
		})
	}
}

// A signer command holds the key elsewhere. Its failures, and signatures by another key, are reported.
func TestKeyCommand(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue("1")
	f.seal()
	good := filepath.Join(f.dir, "sign")
	// The test binary is no signer: a precomputed signature is one for this checkpoint only.
	secret, err := os.ReadFile(f.key)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := seal.NewSigner(strings.TrimSpace(string(secret)))
	if err != nil {
		t.Fatal(err)
	}
	newest, err := seal.Newest(t.Context(), f.db)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(newest)
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(signed))
	script := fmt.Sprintf("#!/bin/sh\ncat > %s/text\necho %s | base64 -d | tail -c 64 | base64\n", f.dir,
		fields[len(fields)-1])
	if err := os.WriteFile(good, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	file := f.file("log")
	file.KeyFile, file.PublicKey, file.KeyCommand = "", f.public, []string{good}
	f.mustPublish(file)
	if o := f.observe(file, seal.Policy{}); o.Checkpoint != newest {
		t.Errorf("published %+v", o.Checkpoint)
	}
	if text, err := os.ReadFile(filepath.Join(f.dir, "text")); err != nil || string(text) != newest.String() {
		t.Errorf("the command was given %q: %v", text, err)
	}
	f.enqueue("2")
	f.seal()
	for name, test := range map[string]struct {
		command []string
		want    string
	}{
		"a signature of another text": {command: []string{good}, want: "is not valid for the key"},
		"an exit code":                {command: []string{"false"}, want: "key_command false: exit status 1"},
		"no base64":                   {command: []string{"echo", "?"}, want: "must write the signature in base64"},
		"a missing program":           {command: []string{"/nonexistent/sign"}, want: "key_command /nonexistent/sign"},
	} {
		file.KeyCommand = test.command
		if err := f.publish(file); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}

// A publisher that is killed anywhere is run again, and finishes; no receiver lacks or repeats a checkpoint.
func TestKilledPublisher(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file := f.file("log")
	file.Path = filepath.Join(f.dir, "checkpoints")
	for i, point := range []string{fault.SealTiles, fault.SealPublished} {
		f.enqueue(fmt.Sprint(i))
		f.seal()
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), fault.Variable+"="+point,
			childDatabase+"="+ledgertest.URLAs(t, f.app.Config().ConnString(), "archiver", "relay"),
			childFile+"="+toJSON(t, map[string]string{
				"key_file": file.KeyFile, "directory": file.Directory, "file": file.Path,
			}))
		output, _ := cmd.CombinedOutput()
		status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
			t.Fatalf("the process was not killed at %s: %s", point, output)
		}
		f.mustPublish(file)
		f.observe(file, seal.Policy{})
	}
	text, err := os.ReadFile(file.Path)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := seal.ParseCheckpoints(string(text)); err != nil || len(all) != 2 || all[1].Size != 2 {
		t.Errorf("the file has %+v, %v", all, err)
	}
}

// A file of checkpoints that ends in the middle of one is not continued.
func TestTruncatedFile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue("1")
	f.seal()
	file := f.file("log")
	file.Path = filepath.Join(f.dir, "checkpoints")
	f.mustPublish(file)
	if err := os.Truncate(file.Path, 60); err != nil {
		t.Fatal(err)
	}
	f.enqueue("2")
	f.seal()
	if err := f.publish(file); err == nil || !strings.Contains(err.Error(), "checkpoints: its last lines: ") {
		t.Error(err)
	}
}

// A full disk leaves no part of a checkpoint, in the directory or in the file. With space again, the next one follows.
func TestFullDiskOfALog(t *testing.T) {
	t.Parallel()
	const disk, block = 256 << 10, 4096
	for _, isFile := range []bool{false, true} {
		t.Run(fmt.Sprintf("file=%t", isFile), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			dir := smalldisk.Mount(t, disk)
			log := f.file("log")
			if !isFile {
				log.Directory = filepath.Join(dir, "log")
			} else {
				log.Path = filepath.Join(dir, "checkpoints")
			}
			next := func() error {
				t.Helper()
				f.enqueue(fmt.Sprint("n", f.seal().Size))
				f.seal()
				return f.publish(log)
			}
			var before []byte
			for size := -1; size < 0 || isFile && block-len(before)%block > size; { // the next one crosses a block
				length := len(before)
				if err := next(); err != nil {
					t.Fatal(err)
				}
				if isFile {
					var err error
					if before, err = os.ReadFile(log.Path); err != nil {
						t.Fatal(err)
					}
				}
				size = len(before) - length
			}
			kept := f.observe(log, seal.Policy{}).Checkpoint
			filler := filepath.Join(dir, "filler")
			if err := os.WriteFile(filler, make([]byte, 2*disk), 0o600); !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			if err := next(); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("on a full disk: %v", err)
			}
			if isFile {
				if after, err := os.ReadFile(log.Path); err != nil || string(after) != string(before) {
					t.Errorf("the file has grown from %d to %d bytes: %v", len(before), len(after), err)
				}
			} else if o := f.observe(log, seal.Policy{}); o.Checkpoint != kept {
				t.Errorf("the directory has %+v, want %+v", o.Checkpoint, kept)
			}
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			if err := next(); err != nil {
				t.Fatalf("with space again: %v", err)
			}
			if o := f.observe(log, seal.Policy{}); o.Size != kept.Size+2 {
				t.Errorf("the directory has %d leaves, want %d", o.Size, kept.Size+2)
			}
		})
	}
}

// Every fault of a file is reported at once, with its field.
func TestFaultsOfAFile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for text, want := range map[string]string{
		`{}`:                   "",
		`{"key":"x"}`:          "key",
		`{"directory":"/tmp"}`: "key_file",
		`{"key_file":"/nonexistent","directory":"d"}`:                                 "key_file",
		`{"key_env":"SEAL_TEST_UNSET","directory":"d"}`:                               "key_env",
		`{"key_file":"` + f.key + `"}`:                                                "directory",
		`{"key_file":"` + f.key + `","subject":"ledger.x"}`:                           "subject",
		`{"key_file":"` + f.key + `","subject":"checkpoint.*"}`:                       "subject",
		`{"key_file":"` + f.key + `","directory":"d","every":"1ms"}`:                  "every",
		`{"key_file":"` + f.key + `","directory":"d","quorum":1}`:                     "quorum",
		`{"key_file":"` + f.key + `","directory":"d","public_key":"x"}`:               "public_key",
		`{"key_command":["sign"],"directory":"d"}`:                                    "public_key",
		`{"key_command":["sign"],"key_file":"` + f.key + `","directory":"d"}`:         "key_command",
		`{"key_file":"` + f.key + `","directory":"d","webhooks":[{"url":"ftp://x"}]}`: "webhooks[0].url",
		`{"key_file":"` + f.key + `","directory":"d","witnesses":[{"url":"x"}]}`:      "witnesses[0].url",
		`{"key_file":"` + f.key + `","directory":"d","witnesses":[{"url":"https://w.example","public_key":"` +
			f.public + `"}]}`: "witness",
	} {
		_, err := sealer.Parse([]byte(text))
		var invalid *ledger.InvalidError
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (!errors.As(err, &invalid) || invalid.Field != want):
			t.Errorf("%s: %v, want a fault of %s", text, err, want)
		}
	}
}
