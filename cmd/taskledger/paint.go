package main

import (
	"io"
	"os"
	"regexp"

	"github.com/taskledger/taskledger/ledger"
)

// paint is a sequence that begins a colour or bold text on a terminal. The functions that render data use paints
// always; what writes to something other than a terminal removes them. Untrusted text contains none: see plain.
type paint string

const (
	bold   paint = "\x1b[1m"
	faint  paint = "\x1b[2m"
	red    paint = "\x1b[31m"
	green  paint = "\x1b[32m"
	yellow paint = "\x1b[33m"
	blue   paint = "\x1b[34m"
	violet paint = "\x1b[35m"
)

// on returns a text with the paint.
func (p paint) on(s string) string {
	if s == "" || p == "" {
		return s
	}
	return string(p) + s + "\x1b[0m"
}

var paints = regexp.MustCompile(`\x1b\[[0-9]+m`)

// statePaints are the paints of states and events. The text names them, too.
var statePaints = map[string]paint{
	string(ledger.StateAvailable): "", string(ledger.StateRunning): blue, string(ledger.StateRetrying): yellow,
	string(ledger.StateScheduled): violet, string(ledger.StateInLine): violet, string(ledger.StateDead): red,
	string(ledger.StateSucceeded): green,
	string(ledger.StateCancelled): faint, string(ledger.StateExpired): red, string(ledger.StateDiscarded): faint,
	string(ledger.EventStarted): blue, string(ledger.EventProgressed): blue, string(ledger.EventFailed): red,
	string(ledger.EventBuried): red, string(ledger.EventSnoozed): yellow, string(ledger.EventInterrupted): yellow,
}

// painted returns the name of a state or of an event with its paint.
func painted[S ~string](s S) string { return statePaints[string(s)].on(string(s)) }

// number returns a count: zero is faint, others are painted.
func (p paint) number(n int64) string {
	if n == 0 {
		return faint.on("0")
	}
	return p.on(count(n))
}

// hasColour reports whether a file is a terminal on which the user wants colours: https://no-color.org.
func (a *app) hasColour(to io.Writer) bool {
	file, ok := to.(*os.File)
	if !ok || a.getenv("NO_COLOR") != "" || a.getenv("TERM") == "dumb" || a.getenv("TERM") == "" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// unpainted returns a text without paints, unless a terminal shows it.
func unpainted(text []byte, isTerminal bool) []byte {
	if isTerminal {
		return text
	}
	return paints.ReplaceAll(text, nil)
}
