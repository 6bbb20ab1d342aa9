package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Each command that takes the author of a change has the same default.
func TestActorsOfCommands(t *testing.T) {
	t.Parallel()
	change := &cobra.Command{}
	addActorFlag(change, new(string))
	usage, authors := change.Flags().Lookup("actor").Usage, 0
	walk(newApp().newRootCommand(), func(cmd *cobra.Command) {
		f := cmd.Flags().Lookup("actor")
		if f == nil || strings.HasPrefix(f.Usage, "only ") {
			return
		}
		if authors++; f.Usage != usage {
			t.Errorf("%s --actor: %s", cmd.CommandPath(), f.Usage)
		}
	})
	if authors < 15 {
		t.Errorf("only %d commands have --actor", authors)
	}

	pool := ledgertest.Pool(t, "producer", "operator")
	environment := map[string]string{envDatabaseURL: pool.Config().ConnString()}
	for _, line := range []string{"enqueue k 1", "cancel k 1"} {
		if _, stderr, exit := run(t, environment, strings.Fields(line)...); exit != exitOK {
			t.Fatalf("%s: exit %d: %s", line, exit, stderr)
		}
	}
	events, err := ledger.History(t.Context(), pool, ledger.Key{Kind: "k", BizID: "1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Actor != actorOr("") {
			t.Errorf("the actor of %s is %q, want %q", e.Type, e.Actor, actorOr(""))
		}
	}
	if len(events) != 2 {
		t.Errorf("%d events", len(events))
	}
}
