package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
)

// Untrusted text and numbers, in the form that most tables use.
var (
	plain   = printable.Text
	shorten = printable.Short
	count   = printable.Count
)

// escapeControls escapes characters that encoding/json leaves in strings although terminals interpret them:
// DEL and the C1 control characters. Outside of strings JSON has none of these.
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

// age returns a duration for people, in its largest unit.
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

// ago returns the age of a time.
func ago(t time.Time) string { return age(time.Since(t)) + " ago" }
