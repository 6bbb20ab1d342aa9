package rules_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Subjects and streams have a prefix where ledgers share an account of NATS, so internal/stream alone names them:
// stream.Prefix. Tests may use the names of a ledger without a prefix that it exports.
var (
	namesSubject = regexp.MustCompile(`^(\$JS\.(API|ACK)\..*\.)?(ledger\.([*>0-9]|$)|` +
		`taskledger\.(dispatch|progress|copies|wake)($|\.)|LEDGER($|[._])|SUBSCRIBER_|subscriber\.($|[*>])|_INBOX)`)
	withoutPrefix = []string{"Name", "AllSubjects", "Copies", "Subject", "Encode"}
)

// namesNoSubject lists files that may contain such words, with the reason.
var namesNoSubject = map[string]string{
	"internal/natsconfig/config.go": "the default name of an account",
	"internal/health/outbox.go":     "the stream's name in a condition without a connection to NATS",
	"workers/caller.go":             "a message that is encoded and decoded in one process",
	"tracing/relay.go":              "the name of a span",
	"examples/stream/main.go":       "a program without packages of ours, for a ledger without a prefix",
}

func TestSubjectsHaveOneOwner(t *testing.T) {
	t.Parallel()
	unused := make(map[string]bool)
	for name := range namesNoSubject {
		unused[name] = true
	}
	for _, file := range trackedFiles(t) {
		if !isOfProduct(file) {
			continue
		}
		for _, fault := range namedSubjects(t, file, nil) {
			if delete(unused, file); namesNoSubject[file] == "" {
				t.Errorf("%s: ask stream.PrefixOf(nc) for %s", file, fault)
			}
		}
	}
	for name := range unused {
		t.Errorf("%s: names no subject; remove it from the exceptions", name)
	}
}

// The rule finds both ways around the prefix.
func TestSubjectsHaveOneOwnerFinds(t *testing.T) {
	t.Parallel()
	const source = "package p\nvar a, b, c = \"ledger.>\", \"$JS.API.STREAM.INFO.LEDGER\", stream.Name\n" +
		"var d = \"ledger.Kind of LEDGER\"\n" +
		"var e = stream.PrefixOf(nc).AllSubjects() + \"subscriber.seek\"\n"
	want := []string{`"ledger.>"`, `"$JS.API.STREAM.INFO.LEDGER"`, "stream.Name"}
	if got := namedSubjects(t, "p.go", source); !slices.Equal(got, want) {
		t.Errorf("found %q, not %q", got, want)
	}
}

func isOfProduct(file string) bool {
	if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
		return false
	}
	for _, folder := range []string{"bench/", "internal/stream/", "internal/torture/", "internal/servicetest/",
		"internal/systemtest/", "internal/rules/", "watermill/internal/watermilltest/"} {
		if strings.HasPrefix(file, folder) {
			return false
		}
	}
	return true
}

// namedSubjects returns the names of subjects and streams in a file that ignore the prefix. source is nil, or its text.
func namedSubjects(t *testing.T, file string, source any) (found []string) {
	t.Helper()
	path := file
	if source == nil {
		path = filepath.Join(root, file)
	} else {
		source = []byte(source.(string))
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			if n.Kind == token.STRING && err == nil && namesSubject.MatchString(text) && !strings.Contains(text, " ") {
				found = append(found, n.Value)
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "stream" && slices.Contains(withoutPrefix, n.Sel.Name) {
				found = append(found, "stream."+n.Sel.Name)
			}
		}
		return true
	})
	return found
}
