package main

import (
	"io"
	"strings"
	"testing"
)

// A word of another program, an object before its verb and a mistyped word lead to the command that was meant.
func TestMeantCommands(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, hint string }{
		{line: "why coupon.send o-17", hint: "did you mean: taskledger show task coupon.send o-17"},
		{line: "task why coupon.send o-17", hint: "did you mean: taskledger show task coupon.send o-17"},
		{line: "task coupon.send/o-17", hint: "did you mean: taskledger show task coupon.send/o-17"},
		{line: "run-again coupon.send o-17 --reason x", hint: "did you mean: taskledger release coupon.send o-17"},
		{line: "task run-again coupon.send o-17", hint: "did you mean: taskledger release coupon.send o-17"},
		{line: "rerun", hint: "did you mean: taskledger release KIND BIZ_ID"},
		{line: "retry", hint: "for a task: taskledger release KIND BIZ_ID"},
		{line: "retry coupon.send 'a", hint: `did you mean: taskledger release coupon.send ''\''a'`},
		{line: "retry task coupon.send/o-17", hint: "did you mean: taskledger release coupon.send/o-17"},
		{line: "task cancel a b", hint: "did you mean: taskledger cancel a b"},
		{line: "create task a b", hint: "did you mean: taskledger enqueue a b"},
		{line: "env", hint: "did you mean: taskledger url database"},
		{line: "list", hint: "did you mean: taskledger show tasks"},
		{line: "kind list", hint: "did you mean: taskledger show kinds"},
		{line: "list kinds", hint: "did you mean: taskledger show kinds"},
		{line: "kind pause a", hint: "did you mean: taskledger pause kind a"},
		{line: "schedule run nightly", hint: "did you mean: taskledger run schedule nightly"},
		{line: "workers", hint: "did you mean: taskledger show workers"},
		{line: "cancle a", hint: "did you mean cancel? or run: taskledger --help"},
		{line: "wibble", hint: "run: taskledger --help"},
		{line: "seek wibble", hint: "run: taskledger seek --help"},
	} {
		var stderr strings.Builder
		exit := newApp().Run(t.Context(), strings.Fields(c.line), strings.NewReader(""), io.Discard, &stderr)
		if exit != exitUsage || !strings.HasSuffix(stderr.String(), "\nhint: "+c.hint+"\n") {
			t.Errorf("%s: exit %d, %q, want %q", c.line, exit, stderr.String(), c.hint)
		}
	}
	root := newApp().newRootCommand()
	for word, command := range meant {
		first, second, _ := strings.Cut(command, " ")
		if strings.HasPrefix(second, "-") {
			second = ""
		}
		if fault := unknownMention(root, first, second); fault != "" || find(root, word) != nil {
			t.Errorf("%s: %s, %s", word, command, fault)
		}
	}
}
