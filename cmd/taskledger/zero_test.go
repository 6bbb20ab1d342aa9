package main

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// zeroMeanings are the flags that may be given as 0, by the reason.
var zeroMeanings = map[string]string{
	"taskledger archive --older-than":       "all tasks that have ended",
	"taskledger enqueue --run-in":           "now, as without it",
	"taskledger enqueue --shard":            "the shard 0",
	"taskledger enqueue --wait":             "it does not wait, as without it",
	"taskledger events --after":             "the beginning, as without it",
	"taskledger events --tail":              "with --follow: only new events",
	"taskledger prove --after":              "the beginning, as without it",
	"taskledger reschedule --in":            "invalid: one of --at and --in must be given",
	"taskledger seek subscriber --position": "the beginning, before the first position",
}

// filters are the flags whose empty text would select everything.
var filters = []string{"kind", "state", "tag", "type", "fingerprint", "error"}

// A flag that is given as 0 or "" does not mean that it was not given: it is refused, or 0 has a meaning of its own.
func TestZeroOfFlags(t *testing.T) {
	a := newApp()
	seen := map[string]bool{}
	walk(a.newRootCommand(), func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			isNumber := f.DefValue == "0" || f.DefValue == "" && f.Value.Type() == "duration"
			isFilter := f.Value.Type() == "string" && slices.Contains(filters, f.Name)
			name := cmd.CommandPath() + " --" + f.Name
			seen[name] = true
			_, refuses := f.Annotations[refusesZero]
			refuses = refuses || f.Name == "watch" // whose shortest interval is longer
			if _, hasMeaning := zeroMeanings[name]; (isNumber || isFilter) && !refuses && !hasMeaning {
				t.Errorf("%s: 0 means that it was not given; mark it by refuseZero, or give the reason here", name)
			}
		})
	})
	for name := range zeroMeanings {
		if !seen[name] {
			t.Errorf("%s does not exist", name)
		}
	}
}
