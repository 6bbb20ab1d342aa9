package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A command of a document: on a line of its own, or in backticks.
var documentedCommand = regexp.MustCompile("(?m)(^    |`)(taskledger [a-z][^`\n]*)")

// Each command of a document exists and has the flags there. On a line of its own it has all of its arguments, too.
func TestCommandsInDocuments(t *testing.T) {
	t.Parallel()
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, doc := range append(docs, "../../README.md", "../../SECURITY.md", "../../ARCHITECTURE.md") {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range documentedCommand.FindAllStringSubmatch(string(text), -1) {
			n++
			if err := parseCommand(m[2], m[1] != "`"); err != nil {
				t.Errorf("%s: %s: %v", filepath.Base(doc), m[2], err)
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d commands were found", n)
	}
}

// parseCommand parses a line as a shell and the program do, and runs nothing.
func parseCommand(line string, isWhole bool) error {
	for _, end := range []string{" #", " >", " |"} {
		line, _, _ = strings.Cut(line, end)
	}
	out, err := exec.Command("sh", "-c", `taskledger() { printf '%s\0' "$@"; }`+"\n"+line).Output()
	if err != nil {
		return err
	}
	words := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	root := newApp().newRootCommand()
	cmd, rest, err := root.Traverse(words)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil && !errors.Is(err, pflag.ErrHelp) {
		return err
	}
	if !isWhole {
		return nil
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// mention is the name of the program with one or two words behind it, in a text without line breaks. A word that begins
// with a capital is an argument.
var mention = regexp.MustCompile(`(?:^|[^\w./:@-])taskledger ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?`)

var (
	// goBreak is a line break in a comment, in a text that is not indented, or between two strings of Go.
	goBreak = regexp.MustCompile(`" \+\s*"|\n\s*//|\n(\b)`)
	// sqlBreak is a line break in a comment of SQL.
	sqlBreak = regexp.MustCompile(`\n\s*--`)
	// proseBreak is a line break in a paragraph.
	proseBreak = regexp.MustCompile(`\n *`)
	// otherLine is a line of a script that does not run the program, or on purpose wrongly.
	otherLine = regexp.MustCompile(`(?m)^(?:[^e].*|exits 2 .*)$`)
	spaces    = regexp.MustCompile(`[ \t]+`)
)

// proseWords are the words behind the name of the program that are not commands: in sentences about the program, its
// schema or its package, and in the names of formats.
var proseWords = strings.Fields(`and as before call calls can cascade console delivers dispatch dist encrypts ends event
	from has holds in is itself keeps needs on personal publishes record runs that to under uses v was with x`)

// commandFile is the name of a file that may name commands.
var commandFile = regexp.MustCompile(`\.(md|go|sql|html|ya?ml|txtar|service|sh|m?js|py)$|^(Makefile|Dockerfile.*)$`)

// unwrap returns a text without the line breaks that may be within a sentence.
func unwrap(file, text string) string {
	switch filepath.Ext(file) {
	case ".go":
		text = goBreak.ReplaceAllString(text, " ")
	case ".sql":
		text = sqlBreak.ReplaceAllString(text, " ")
	case ".md":
		text = proseBreak.ReplaceAllString(text, " ")
	case ".txtar":
		text = otherLine.ReplaceAllString(text, "")
	}
	return strings.ReplaceAll(spaces.ReplaceAllString(text, " "), "schema taskledger", "schema")
}

// Each text that names a command names one that exists: documents, strings and comments of Go, SQL, pages of the
// console, rules of alarms, files of deployments, and scripts. In the middle of a line, too.
func TestEachCommandThatATextNamesExists(t *testing.T) {
	t.Parallel()
	root := newApp().newRootCommand()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	n := 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasPrefix(name, ".") && name != ".." || name == "node_modules"):
			return filepath.SkipDir
		case entry.IsDir() || !commandFile.MatchString(name) || name == "documents_test.go":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range mention.FindAllStringSubmatch(unwrap(path, string(text)), -1) {
			n++
			if fault := unknownMention(root, m[1], m[2]); fault != "" {
				t.Errorf("%s: %s", strings.TrimPrefix(path, "../../"), fault)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 500 {
		t.Errorf("only %d commands were found", n)
	}
}

// unknownMention returns the fault of a text that has one or two words behind the name of the program, or "".
func unknownMention(root *cobra.Command, first, second string) string {
	if slices.Contains(proseWords, first) {
		return ""
	}
	find := func(cmd *cobra.Command, word string) *cobra.Command {
		i := slices.IndexFunc(cmd.Commands(), func(sub *cobra.Command) bool { return sub.Name() == word })
		if i < 0 {
			return nil
		}
		return cmd.Commands()[i]
	}
	cmd := find(root, first)
	switch {
	case cmd == nil:
		return "there is no command taskledger " + first
	case second == "" || slices.Contains(proseWords, second):
		return ""
	case len(objectsOf(cmd)) > 0:
		if _, err := findObject(cmd, second); err != nil {
			return err.Error()
		}
	case cmd.HasSubCommands() && cmd.Use != "serve" && find(cmd, second) == nil:
		return "there is no command taskledger " + first + " " + second
	}
	return ""
}

// A command that does not exist is found in a sentence, across lines and in a string of Go.
func TestUnknownCommandsAreFound(t *testing.T) {
	t.Parallel()
	root := newApp().newRootCommand()
	for _, test := range []struct {
		file, text string
		isFault    bool
	}{
		{file: "a.go", text: "list them with: taskledger task list", isFault: true},
		{file: "a.go", text: "// run `taskledger show\n// kind` first"},
		{file: "a.go", text: "// run taskledger verify\n\t// stream", isFault: true},
		{file: "a.go", text: `"to see it: taskledger " +` + "\n\t" + `"kind list"`, isFault: true},
		{file: "a.go", text: "`as reported by taskledger\nworker list.`", isFault: true},
		{file: "a.md", text: "ends it, and taskledger\nkind resume KIND begins it", isFault: true},
		{file: "a.html", text: "<code>taskledger pause worker x</code>", isFault: true},
		{file: "a.sql", text: "-- revoked by taskledger\n-- token revoke", isFault: true},
		{file: "a.txtar", text: "exec taskledger pause kind coupon.send\nexits 2 taskledger bogus"},
		{file: "a.txtar", text: "exec taskledger kind pause coupon.send", isFault: true},
		{file: "a.yml", text: "app: taskledger\nversion: github.com/taskledger/taskledger version"},
	} {
		fault := ""
		for _, m := range mention.FindAllStringSubmatch(unwrap(test.file, test.text), -1) {
			fault += unknownMention(root, m[1], m[2])
		}
		if (fault != "") != test.isFault {
			t.Errorf("%s: %q: %q", test.file, test.text, fault)
		}
	}
}
