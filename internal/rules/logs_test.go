package rules_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logMethods are the methods of a slog.Logger with the number of their arguments before the keys.
var logMethods = map[string]int{
	"Debug": 1, "Info": 1, "Warn": 1, "Error": 1,
	"DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2,
}

var (
	loggerName = regexp.MustCompile(`(?i)(log|logger)$`)
	logKey     = regexp.MustCompile(`^[a-z][a-z_]*$`)
	// A value that could hold a secret or a payload.
	hiddenValue = regexp.MustCompile(
		`(?i)(password|secret|token|payload|args|meta|natsurl|databaseurl|connstring|creds)$`)
	keyRow  = regexp.MustCompile(`(?m)^\| [^|]+ \| ([^|]+) \|$`) // a group of keys; other words are not in backticks
	logKeys = regexp.MustCompile("`([a-z_]+)`")
)

// forwarded are the files whose lines come from elsewhere: their message is no literal.
var forwarded = []string{"internal/natsserver/logger.go", "internal/loglimit/loglimit.go"}

// Every line of a log has a constant message and keys of the table in docs/operations.md, and no value of it is args,
// a payload or a credential.
func TestLogCalls(t *testing.T) {
	t.Parallel()
	documented := make(map[string]bool)
	doc := readDoc(t, "docs/operations.md")
	begin := strings.Index(doc, "\n## Logs\n")
	if begin < 0 {
		t.Fatal("docs/operations.md has no section Logs")
	}
	end := strings.Index(doc[begin+1:], "\n## ")
	for _, row := range keyRow.FindAllStringSubmatch(doc[begin:begin+1+end], -1) {
		for _, key := range logKeys.FindAllStringSubmatch(row[1], -1) {
			documented[key[1]] = false
		}
	}
	calls := 0
	for _, file := range trackedFiles(t) {
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") ||
			strings.HasPrefix(file, "bench/") ||
			strings.HasPrefix(file, "internal/torture/") || slices.Contains(forwarded, file) {
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
			if before, isLog := isLogCall(call); isLog {
				calls++
				checkLogCall(t, set.Position(call.Pos()).String(), call.Args[before-1:], documented)
			}
			return true
		})
	}
	if calls < 80 {
		t.Errorf("found %d calls", calls)
	}
	for key, isUsed := range documented {
		if !isUsed && key != "time" && key != "level" && key != "msg" && key != "service" && key != "times" {
			t.Errorf("no line has the documented key %s", key)
		}
	}
}

// isLogCall reports whether a call writes a line, and the number of its arguments up to the message.
func isLogCall(call *ast.CallExpr) (before int, isLog bool) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) < logMethods[method.Sel.Name] || logMethods[method.Sel.Name] == 0 {
		return 0, false
	}
	if lastName(method.X) == "limited" { // a loglimit.Logger, whose first argument is the logger
		return 2, call.Ellipsis == token.NoPos // else a function that forwards
	}
	return logMethods[method.Sel.Name], loggerName.MatchString(lastName(method.X))
}

// lastName returns the last name of an expression: that of a field, a function or a variable.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.CallExpr:
		return lastName(e.Fun)
	case *ast.ParenExpr:
		return lastName(e.X)
	}
	return ""
}

// isConstant reports whether an expression is a literal, or a concatenation of literals.
func isConstant(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return true
	case *ast.BinaryExpr:
		return isConstant(e.X) && isConstant(e.Y)
	}
	return false
}

func checkLogCall(t *testing.T, at string, args []ast.Expr, documented map[string]bool) {
	t.Helper()
	if !isConstant(args[0]) {
		t.Errorf("%s: the message is no constant", at)
		return
	}
	for i := 1; i < len(args); i += 2 {
		literal, isLiteral := args[i].(*ast.BasicLit)
		if !isLiteral || i+1 == len(args) {
			t.Errorf("%s: keys must be constants, each followed by its value", at)
			return
		}
		key, err := strconv.Unquote(literal.Value)
		if err != nil || !logKey.MatchString(key) {
			t.Errorf("%s: key %s must have a to z and _", at, literal.Value)
		}
		if _, isDocumented := documented[key]; !isDocumented {
			t.Errorf("%s: docs/operations.md has no key %s", at, key)
		}
		documented[key] = true
		ast.Inspect(args[i+1], func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok && hiddenValue.MatchString(lastName(e)) {
				t.Errorf("%s: the value of %s could be a secret or a payload", at, key)
			}
			return true
		})
	}
}
