package rules_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// wholeHistories are the files that may read all events of a task, with the reason. Others read a part, since a task
// may have a million events: ledger.Load, FirstEvent, NewestOf, VersionAsOf.
var wholeHistories = map[string]string{
	"cmd/taskledger/internal/whatif/whatif.go": "a simulation has no time limit",
	"projector/tasks.go":                       "a row is folded again from the first event",

	"watermill/internal/watermilltest/kit.go": "a helper of tests",
}

// Whole histories are not read on a path with a time limit.
func TestWholeHistoriesAreRare(t *testing.T) {
	t.Parallel()
	found := make(map[string]bool)
	for _, file := range trackedFiles(t) {
		folder, _, _ := strings.Cut(file, "/")
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") ||
			slices.Contains([]string{"bench", "examples", "internal"}, folder) {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, repository+"/"+file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			isWhole := false
			switch f := call.Fun.(type) {
			case *ast.SelectorExpr:
				x, _ := f.X.(*ast.Ident)
				isWhole = x != nil && x.Name == "ledger" && f.Sel.Name == "History"
			case *ast.Ident:
				isWhole = f.Name == "History" && parsed.Name.Name == "ledger"
			}
			if isWhole {
				found[file] = true
				if wholeHistories[file] == "" {
					t.Errorf("%s: reads all events of a task", set.Position(call.Pos()))
				}
			}
			return true
		})
	}
	for file := range wholeHistories {
		if !found[file] {
			t.Errorf("%s reads no whole history: remove it from the list", file)
		}
	}
}
