package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
)

// Formats of untrusted text, numbers and durations in tables.
var (
	plain   = printable.Text
	shorten = printable.Short
	count   = printable.Count
	age     = printable.Age
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

// ago returns the age of a time.
func ago(t time.Time) string { return age(time.Since(t)) + " ago" }
