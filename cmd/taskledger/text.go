package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
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

// shellKey returns a key as two words of a command line. $'…' is of bash, zsh and the newer sh.
func shellKey(k ledger.Key) string {
	words := shellWord(string(k.Kind)) + " " + shellWord(string(k.BizID))
	if strings.HasPrefix(string(k.Kind), "-") || strings.HasPrefix(string(k.BizID), "-") {
		return "-- " + words
	}
	return words
}

// shellWord returns a text as one printable word of a shell's command line.
func shellWord(s string) string {
	const plainBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:@+,"
	switch {
	case s != "" && strings.Trim(s, plainBytes) == "":
		return s
	case plain(s) == s:
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(plainBytes, s[i]) >= 0 {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, `\%03o`, s[i])
		}
	}
	return "$'" + b.String() + "'"
}

// ago returns the age of a time.
func ago(t time.Time) string { return age(time.Since(t)) + " ago" }
