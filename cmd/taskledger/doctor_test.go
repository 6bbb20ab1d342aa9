package main

import (
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The logins of programs pass the doctor, although their roles may not read the schema's version.
func TestDoctorOfPrograms(t *testing.T) {
	t.Parallel()
	owner := ledgertest.URL(t, ledgertest.Owner)
	for _, c := range []struct {
		roles   []string
		finding string
	}{
		{[]string{"producer"}, `{"check":"schema","level":"ok","text":"not examined`},
		{[]string{"producer", "worker"}, `{"check":"schema","level":"ok","text":"not examined`},
		{[]string{"reader"}, `{"check":"schema","level":"ok","text":"migrated to this version"}`},
	} {
		environment := map[string]string{envDatabaseURL: ledgertest.URLAs(t, owner, c.roles...)}
		stdout, stderr, _ := run(t, environment, "doctor", "-o", "jsonl")
		if !strings.Contains(stdout, c.finding) {
			t.Errorf("the doctor of %v does not report %s: %s%s", c.roles, c.finding, stdout, stderr)
		}
	}
}
