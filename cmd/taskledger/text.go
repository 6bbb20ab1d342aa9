package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
)

// What others wrote, and numbers, as nearly every table shows them.
var (
	plain   = printable.Text
	shorten = printable.Short
	count   = printable.Count
)

// escapeControls escapes what encoding/json leaves as it is in strings although terminals may
// obey it: DEL and the C1 control characters. Outside of strings JSON has none.
func escapeControls(text []byte) []byte {
	if !bytes.ContainsFunc(text, isC1) {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		if isC1(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}

func isC1(r rune) bool { return r >= 0x7f && r <= 0x9f }

// age is a duration for people, in its largest unit.
func age(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", max(0, d.Milliseconds()))
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// ago is how long ago a time was.
func ago(t time.Time) string { return age(time.Since(t)) + " ago" }
