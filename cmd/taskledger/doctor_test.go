package main

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The logins of programs are examined, although their roles may not read the schema's version. A producer needs no
// NATS, which does not run here.
func TestDoctorOfPrograms(t *testing.T) {
	t.Parallel()
	owner := ledgertest.URL(t, ledgertest.Owner)
	const (
		hidden = `{"check":"schema","level":"ok","text":"not examined`
		shown  = `{"check":"schema","level":"ok","text":"migrated to this version"}`
	)
	for _, c := range []struct {
		roles   []string
		finding string
		nats    string
	}{
		{roles: []string{"producer"}, finding: hidden, nats: ""},
		{roles: []string{"producer", "worker"}, finding: hidden, nats: "failure"},
		{roles: []string{"reader"}, finding: shown, nats: "failure"},
	} {
		environment := map[string]string{envDatabaseURL: ledgertest.URLAs(t, owner, c.roles...)}
		stdout, stderr, _ := run(t, environment, "doctor", "-o", "jsonl")
		if !strings.Contains(stdout, c.finding) {
			t.Errorf("the doctor of %v does not report %s: %s%s", c.roles, c.finding, stdout, stderr)
		}
		_, level, _ := strings.Cut(stdout, `"check":"nats","level":"`)
		if level, _, _ = strings.Cut(level, `"`); level != c.nats {
			t.Errorf("the doctor of %v reports NATS as %q, want %q: %s", c.roles, level, c.nats, stdout)
		}
	}
}

// A login without rights to the server's statistics counts the connections of other logins too.
func TestDoctorCountsConnectionsOfOtherLogins(t *testing.T) {
	t.Parallel()
	owner := ledgertest.URL(t, ledgertest.Owner)
	for range 3 {
		conn, err := pgx.Connect(t.Context(), owner)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
	}
	environment := map[string]string{envDatabaseURL: ledgertest.URLAs(t, owner, "reader")}
	stdout, stderr, _ := run(t, environment, "doctor")
	found := regexp.MustCompile(`(?m)^connections +\w+ +(\d+) of `).FindStringSubmatch(stdout)
	if found == nil {
		t.Fatalf("no number of connections: %s%s", stdout, stderr)
	}
	if used, _ := strconv.Atoi(found[1]); used < 4 {
		t.Errorf("%d connections, want 4 or more", used)
	}
}
