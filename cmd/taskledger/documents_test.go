package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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
