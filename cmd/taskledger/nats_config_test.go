package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// docs/nats.conf is what the command prints for a subscriber of each form.
func TestNATSConfigIsDocumented(t *testing.T) {
	want, err := os.ReadFile("../../docs/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	if got := printNATSConfig(t, "--subscriber", "mails", "--served", "orders"); got != string(want) {
		t.Error("docs/nats.conf differs: " +
			"go run ./cmd/taskledger nats-config --subscriber mails --served orders > docs/nats.conf")
	}
}

// The seeds are in files that only their owner can read, and never in the output. Another run keeps them.
func TestNATSConfigKeepsSeeds(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	first := printNATSConfig(t, "--keys", keys)
	seeds := readSeeds(t, keys)
	if again := printNATSConfig(t, "--keys", keys); again != first {
		t.Error("the second run prints another configuration")
	}
	if got := readSeeds(t, keys); !slices.Equal(got, seeds) || len(seeds) != 5 {
		t.Errorf("%d seeds changed", len(seeds))
	}
	for _, seed := range seeds {
		if strings.Contains(first, seed) || !strings.HasPrefix(seed, "SU") {
			t.Error("a seed is printed, or is not one of a user")
		}
	}
	more := printNATSConfig(t, "--keys", keys, "--subscriber", "mails")
	if !slices.Equal(readSeeds(t, keys)[:1], seeds[:1]) || !strings.Contains(more, "LEDGER_SUBSCRIBER_mails") {
		t.Error("a subscriber is not added")
	}
}

// readSeeds returns the seeds in a directory, in the order of their users' names.
func readSeeds(t *testing.T, dir string) (seeds []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.nk"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%s: %v, %v", name, info.Mode(), err)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		seeds = append(seeds, strings.TrimSpace(string(text)))
	}
	return seeds
}

func TestNATSConfigRefuses(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{args: []string{"--subscriber", "relay"}, want: "user relay must be named once"},
		{args: []string{"--subscriber", "a.b"}, want: `got "a.b"`},
		{args: []string{"--account", "a b"}, want: `got "a b"`},
		{args: []string{"--tls-ca", "ca.pem"}, want: "TLS needs a certificate and its key"},
	} {
		var out, errs bytes.Buffer
		code := newApp().Run(t.Context(), append([]string{"nats-config"}, test.args...), nil, &out, &errs)
		if code != exitUsage || !strings.Contains(errs.String(), test.want) {
			t.Errorf("%v: exit code %d, %s", test.args, code, errs.String())
		}
	}
}

func printNATSConfig(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := newApp().Run(t.Context(), append([]string{"nats-config"}, args...), nil, &out, &errs); code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	return out.String()
}
