package ledger_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/taskledger/taskledger/ledger"
)

// The diagram in docs/states.md has exactly the transitions of the table.
func TestDiagramIsTheTransitionTable(t *testing.T) {
	type edge struct{ from, to ledger.State }
	labels := map[edge][]string{}
	var order []edge
	for _, row := range ledger.Transitions() {
		for _, from := range row.From {
			e := edge{from: from, to: row.To}
			if labels[e] == nil {
				order = append(order, e)
			}
			labels[e] = append(labels[e], string(row.Type))
		}
	}
	var want strings.Builder
	want.WriteString("stateDiagram-v2\n")
	for _, e := range order {
		from := string(e.from)
		if e.from == ledger.StateNone {
			from = "[*]"
		}
		fmt.Fprintf(&want, "    %s --> %s: %s\n", from, e.to, strings.Join(labels[e], ", "))
	}

	text, err := os.ReadFile("../docs/states.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```mermaid\n")
	got, _, _ := strings.Cut(rest, "```\n")
	if diff := cmp.Diff(want.String(), got); diff != "" {
		t.Errorf("docs/states.md should show:\n%s\n(-want +got):\n%s", want.String(), diff)
	}
}
