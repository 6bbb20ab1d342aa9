package main

import (
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/pgfetch"
)

// The question names npm only if a refusal leads there.
func TestQuestionPromisesNoRefusedFetch(t *testing.T) {
	t.Setenv(yesVariable, "")
	for refuse, want := range map[string]string{"1": "With no, setup ends without it.", "": "With no, it is fetched"} {
		t.Setenv(pgfetch.RefuseVariable, refuse)
		var out strings.Builder
		s := setup{in: strings.NewReader("n\n"), out: &out}
		if s.agrees("apt-get install postgresql") || !strings.Contains(out.String(), want) {
			t.Errorf("%s=%q: %s", pgfetch.RefuseVariable, refuse, out.String())
		}
	}
}
