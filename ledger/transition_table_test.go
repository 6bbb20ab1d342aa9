package ledger_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger"
)

// The table in docs/states.md has exactly the transitions.
func TestTableOfTransitions(t *testing.T) {
	var want strings.Builder
	want.WriteString("| event | in the state | then |\n|---|---|---|\n")
	for _, row := range ledger.Transitions() {
		var from []string
		for _, state := range row.From {
			if state == ledger.StateNone {
				state = "new"
			}
			from = append(from, string(state))
		}
		fmt.Fprintf(&want, "| %s | %s | %s |\n", row.Type, strings.Join(from, ", "), row.To)
	}
	text, err := os.ReadFile("../docs/states.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\n"+want.String()+"\n") {
		t.Errorf("docs/states.md should show:\n%s", want.String())
	}
}
