package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

// suggest returns the commands that a mistyped word is similar to, "" for none.
func suggest(cmd *cobra.Command, word string) string {
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	return strings.Join(cmd.SuggestionsFor(word), " or ")
}

// suggestOf returns the words that a mistyped word is similar to, "" for none.
func suggestOf(words []string, word string) string {
	all := &cobra.Command{} // cobra suggests commands alone
	for _, w := range words {
		all.AddCommand(&cobra.Command{Use: w, Run: func(*cobra.Command, []string) {}})
	}
	return suggest(all, word)
}

// completionTimeout bounds the time that a shell waits for kinds.
const completionTimeout = 2 * time.Second

// addCompletions adds the completion of values to all commands below root: states, formats, and the kinds of the
// database.
func (a *app) addCompletions(root *cobra.Command) {
	var roles []string
	for _, r := range api.Roles() {
		roles = append(roles, string(r))
	}
	values := map[string][]string{
		"output":     {string(formatTable), string(formatJSON), string(formatJSONL)},
		"log-format": {string(logText), string(logJSON)},
		"log-level":  {"debug", "info", "warn", "error"},
		"state":      projection.States(),
		"type":       eventTypes(),

		"role": roles, "http-proxy-role": roles,
	}
	for _, cmd := range append(root.Commands(), root) {
		a.complete(cmd, values)
	}
}

func (a *app) complete(cmd *cobra.Command, values map[string][]string) {
	for _, sub := range cmd.Commands() {
		a.complete(sub, values)
	}
	for name, list := range values {
		if cmd.LocalFlags().Lookup(name) != nil {
			// It returns an error for a flag with a completion: persistent flags are visited more than
			// once.
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	if cmd.LocalFlags().Lookup("kind") != nil {
		_ = cmd.RegisterFlagCompletionFunc("kind", a.completeKind)
	}
	switch _, arguments, _ := strings.Cut(cmd.Use, " "); {
	case len(objectsOf(cmd)) > 0:
		cmd.ValidArgsFunction = a.completeObject
	case strings.HasPrefix(arguments, "KIND"):
		cmd.ValidArgsFunction = a.completeFirstKind
	}
}

// ofKinds are the objects whose names begin with a kind.
var ofKinds = []string{"tasks", "kind", "limit"}

// completeObject completes an object, and the kind behind it.
func (a *app) completeObject(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return objectsOf(cmd), cobra.ShellCompDirectiveNoFileComp
	case 1:
		if object, err := findObject(cmd, args[0]); err == nil && slices.Contains(ofKinds, object) {
			return a.completeKind(cmd, args, word)
		}
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeFirstKind completes the first argument.
func (a *app) completeFirstKind(
	cmd *cobra.Command, args []string, word string,
) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeKind(cmd, args, word)
}

// completeKind returns the kinds that have tasks, and no kinds without a database.
func (a *app) completeKind(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	if err := a.config.read(cmd.Flags(), a.getenv); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	pool, err := a.openDatabase(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer pool.Close()
	counts, err := projector.ReadCounts(ctx, pool, "", lists.All)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var kinds []string
	for _, c := range counts {
		if strings.HasPrefix(string(c.Kind), word) {
			kinds = append(kinds, string(c.Kind))
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds), cobra.ShellCompDirectiveNoFileComp
}

// eventTypes returns all types of events.
func eventTypes() (all []string) {
	for _, t := range ledger.Transitions() {
		all = append(all, string(t.Type))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
