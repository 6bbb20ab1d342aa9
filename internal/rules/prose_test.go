package rules_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// proseRules are the part of "Plain English" in CONTRIBUTING.md that a regular expression can check.
var proseRules = []struct {
	pattern *regexp.Regexp
	rule    string
}{
	{
		pattern: regexp.MustCompile(`(?i)\b(nobody|somebody|everybody|whoever|whatever is)\b`),
		rule:    "rule 1: the subject is a noun: the worker, the caller, the operator, another process",
	},
	{
		pattern: regexp.MustCompile(
			`(?i)\bwho (has|have|does|do|enqueues?|gets|reads|writes|finds|comes|made|makes|is|was|` +
				`wants?|runs?|may|can|only|else)\b`,
		),
		rule: "rule 1: name the person or the process instead of who",
	},
	{
		pattern: regexp.MustCompile(`^(What|Who|Whose) [^?]*$`),
		rule:    "rule 1: a sentence does not begin with a clause; begin with the noun",
	},
	{
		pattern: regexp.MustCompile(`(?i)\b(says?|said|tells?|told|hears?|heard)\b`),
		rule:    "rule 2: things return, log, report, record or store",
	},
	{
		pattern: regexp.MustCompile(`(?i)\b(is|are|be) none\b`),
		rule:    "rule 3: write \"invalid X\" or \"not an X\"; a default is \"Default: disabled.\"",
	},
	{
		pattern: regexp.MustCompile(
			`(?i)\b(for ever|goodbye|farewell|belt and braces|night shift|is another:|in hand|` +
				`set aside|settl(e|es|ed|ing)|leave(s)? word|row1)\b`,
		),
		rule: "rule 6: the field's standard word",
	},
}

// text is a piece of prose, and its file and line.
type text struct {
	at, text string
}

// TestPlainEnglish applies proseRules to comments, messages and documents.
func TestPlainEnglish(t *testing.T) {
	t.Parallel()
	n := 0
	for _, p := range allProse(t) {
		for _, sentence := range sentences(p.text) {
			n++
			for _, r := range proseRules {
				if r.pattern.MatchString(sentence) {
					t.Errorf("%s: %q: %s", p.at, sentence, r.rule)
				}
			}
		}
	}
	if n < 3000 {
		t.Errorf("only %d sentences were read", n)
	}
}

// allProse returns the comments and messages of all sources, the comments of all statements and scripts, and the
// documents.
func allProse(t *testing.T) []text {
	t.Helper()
	var all []text
	for _, path := range trackedFiles(t) {
		switch filepath.Ext(path) {
		case ".go":
			all = append(all, goProse(t, path)...)
		case ".sql":
			all = append(all, sqlProse(t, path)...)
		case ".txtar":
			all = append(all, scriptProse(t, path)...)
		case ".md":
			all = append(all, docProse(t, path)...)
		}
	}
	return all
}

// goProse returns the comment groups of a source, and its string literals that are sentences.
func goProse(t *testing.T, path string) (all []text) {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, readFile(t, path), parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	at := func(p token.Pos) string { return fmt.Sprintf("%s:%d", path, files.Position(p).Line) }
	for _, group := range f.Comments {
		var kept []string
		for line := range strings.Lines(group.Text()) {
			if !strings.HasPrefix(line, "\t") { // code
				kept = append(kept, strings.TrimSpace(line))
			}
		}
		all = append(all, text{at: at(group.Pos()), text: strings.Join(kept, " ")})
	}
	message := func(e ast.Expr) {
		literal, ok := e.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return
		}
		s, err := strconv.Unquote(literal.Value)
		if err == nil && strings.Count(s, " ") >= 2 && !strings.HasPrefix(s, "select ") {
			all = append(all, text{at: at(literal.Pos()), text: strings.Join(strings.Fields(s), " ")})
		}
	}
	isTest := strings.HasSuffix(path, "_test.go")
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if !isTest {
				message(n)
			}
		case *ast.CallExpr: // in a test, other literals are data
			if called, ok := n.Fun.(*ast.SelectorExpr); ok && isTest && testMessage.MatchString(called.Sel.Name) {
				for _, arg := range n.Args {
					message(arg)
				}
			}
		}
		return true
	})
	return all
}

// testMessage matches the methods of testing.T that write a message.
var testMessage = regexp.MustCompile(`^(Error|Fatal|Skip|Log)f?$`)

// sqlProse returns the runs of comment lines of a file.
func sqlProse(t *testing.T, path string) (all []text) {
	t.Helper()
	var run []string
	begin := 0
	flush := func() {
		if len(run) > 0 {
			all = append(all, text{at: fmt.Sprintf("%s:%d", path, begin), text: strings.Join(run, " ")})
		}
		run = nil
	}
	for i, line := range readLines(t, path) {
		_, comment, ok := strings.Cut(line, "--")
		if !ok {
			flush()
			continue
		}
		if run == nil {
			begin = i + 1
		}
		run = append(run, strings.TrimSpace(comment))
	}
	flush()
	return all
}

// scriptProse returns the comments of a txtar script.
func scriptProse(t *testing.T, path string) (all []text) {
	t.Helper()
	for i, line := range readLines(t, path) {
		if comment, ok := strings.CutPrefix(line, "# "); ok {
			all = append(all, text{at: fmt.Sprintf("%s:%d", path, i+1), text: comment})
		}
	}
	return all
}

var inlineCode = regexp.MustCompile("`[^`]*`")

// docProse returns the paragraphs of a document, without its code.
func docProse(t *testing.T, path string) (all []text) {
	t.Helper()
	inCode := false
	for i, line := range readLines(t, path) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inCode = !inCode
			continue
		}
		if !inCode && !strings.HasPrefix(line, "    ") {
			all = append(all, text{
				at: fmt.Sprintf("%s:%d", path, i+1), text: inlineCode.ReplaceAllString(line, "`code`"),
			})
		}
	}
	return all
}

var sentenceEnd = regexp.MustCompile(`[.!?:;]["')]*\s+`)

// sentences splits s after each mark that ends a sentence or a clause.
func sentences(s string) (all []string) {
	begin := 0
	for _, at := range sentenceEnd.FindAllStringIndex(s, -1) {
		all = append(all, strings.TrimSpace(s[begin:at[1]]))
		begin = at[1]
	}
	return append(all, s[begin:])
}

func readLines(t *testing.T, path string) []string {
	t.Helper()
	return strings.Split(readFile(t, path), "\n")
}
