package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// An auditor's monitor reads the published seal from a web server, without a database: verify seal URL.
func TestSealOfAWebServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	database := map[string]string{envDatabaseURL: ledgertest.URL(t, ledgertest.Owner)}
	do := func(line string) string {
		t.Helper()
		stdout, stderr, exit := runUntil(t.Context(), t, database, func() {}, strings.Fields(line)...)
		if exit != exitOK {
			t.Fatalf("%s: exit code %d: %s", line, exit, stderr)
		}
		return stdout
	}
	text := do("seal --make-key " + in("key") + " -o json")
	var made madeSealKey
	if err := json.Unmarshal([]byte(text), &made); err != nil {
		t.Fatal(err)
	}
	file, err := json.Marshal(map[string]string{"key_file": in("key"), "directory": in("log")})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in("seal.json"), file, 0o600); err != nil {
		t.Fatal(err)
	}
	publish := func(id string) {
		t.Helper()
		do("enqueue coupon.send " + id)
		do("seal --publish " + in("seal.json"))
	}
	var failing atomic.Int32 // so many answers
	files := http.StripPrefix("/seal", http.FileServer(http.Dir(in("log"))))
	web := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "hidden" {
			answer.WriteHeader(http.StatusUnauthorized)
			return
		}
		if failing.Add(-1) >= 0 {
			answer.WriteHeader(http.StatusBadGateway)
			return
		}
		files.ServeHTTP(answer, r)
	}))
	t.Cleanup(web.Close)
	address, err := url.Parse(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword("auditor", "hidden")
	monitor := func(ctx context.Context, then func(), path, options string) (stdout, stderr string, exit int) {
		t.Helper()
		var out, errs bytes.Buffer
		a := newApp()
		a.getenv = func(string) string { return "" } // there is no database
		line := "verify seal " + address.JoinPath(path).String() + " --key " + made.PublicKey + " " + options
		exit = a.Run(ctx, strings.Fields(line), strings.NewReader(""), &firstWrite{&out, then}, &errs)
		if strings.Contains(out.String()+errs.String(), "hidden") {
			t.Errorf("a password is printed: %s%s", &out, &errs)
		}
		return out.String(), errs.String(), exit
	}
	verify := func(want int, path, options, text string) {
		t.Helper()
		stdout, stderr, exit := monitor(t.Context(), func() {}, path, options)
		if exit != want || !strings.Contains(stdout+stderr, text) {
			t.Errorf("%s %s: exit code %d, want %d: %s%s, want %s", path, options, exit, want, stdout, stderr, text)
		}
	}
	state := "--state " + in("state") + " --once"
	publish("A-1")
	verify(exitOK, "seal", state, "valid: 1 leaves, 1 new, ")
	publish("A-2")
	publish("A-3")
	verify(exitOK, "seal/", state, "valid: 3 leaves, 2 new, ")
	verify(exitUnavailable, "other", state, "is it the directory of serve --seal, or its URL?")
	failing.Store(1)
	verify(exitUnavailable, "seal", state, "HTTP status 502")

	// Without --once it tries again until the server answers.
	failing.Store(1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stdout, stderr, exit := monitor(ctx, cancel, "seal", "--state "+in("state")+" --every 1s")
	if exit != exitOK || !strings.Contains(stdout, "valid: 3 leaves, 0 new, ") ||
		!strings.Contains(stderr, "trying again: ") {
		t.Errorf("exit code %d: %s%s", exit, stdout, stderr)
	}

	tile := filepath.Join(in("log"), "tile", "0", "000.p", "3")
	if err := os.WriteFile(tile, make([]byte, 96), 0o600); err != nil {
		t.Fatal(err)
	}
	verify(exitIntegrity, "seal", "--state "+in("none")+" --once", "downloaded inconsistent tile")
	web.Close()
	verify(exitUnavailable, "seal", state, "cannot fetch")
}
