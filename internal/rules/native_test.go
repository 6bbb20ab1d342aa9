package rules_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// constructions are those that a native writer avoids, rule 7 of "Plain English" in CONTRIBUTING.md. A match is only a
// candidate: "it has no limit" is plain English.
var constructions = regexp.MustCompile(`\b(that|those) of\b|\bof which\b|\b(none|some|most) of whose\b|\bof whose\b|` +
	`\balso (if|when|of|after|without|in|an?|one|by|while|those|with)\b|\bbeside\b|\bso many\b|` +
	`\b(anew|seldom|again and again|ever more|at last)\b|\b(has|have) (the|its|an?|all|what|no) |` +
	`\bwhat (it|they|is|was|has|an?|the|one|waits|follows|comes)\b|` +
	`\b(the ones?|one that|another one|other ones|those that|that which)\b`)

// maxPerThousand is how many of them 1,000 lines of comments may contain. River and pgx have 9 to 12.
const maxPerThousand = 12

// TestNativeEnglish counts the constructions in the comments of the product's Go files.
func TestNativeEnglish(t *testing.T) {
	t.Parallel()
	lines, matches := 0, 0
	files := token.NewFileSet()
	for _, path := range trackedFiles(t) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(files, path, readFile(t, path), parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range f.Comments {
			for line := range strings.Lines(group.Text()) {
				lines++
				matches += len(constructions.FindAllString(line, -1))
			}
		}
	}
	if lines < 3000 {
		t.Errorf("only %d lines were read", lines)
	}
	if matches*1000 > lines*maxPerThousand {
		t.Errorf("%d matches in %d lines of comments, at most %d in 1,000", matches, lines, maxPerThousand)
	}
	t.Logf("%d matches in %d lines of comments", matches, lines)
}
