package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// progress tells how far the run is: a bar on a terminal, else a line a trial.
type progress struct {
	w         io.Writer
	terminal  bool
	began     time.Time
	all, past int
}

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	return &progress{w: w, terminal: ok && term.IsTerminal(int(f.Fd())), began: time.Now()}
}

// expect adds n trials to those to come.
func (p *progress) expect(n int) { p.all += n }

// begin tells which trial begins.
func (p *progress) begin(what string) {
	const width = 24
	spent := time.Since(p.began).Round(time.Second)
	if p.terminal {
		full := width * p.past / max(p.all, 1)
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K[%s%s] %d/%d %v %s", strings.Repeat("#", full), strings.Repeat(".", width-full), p.past+1, p.all, spent, what)
	} else {
		_, _ = fmt.Fprintf(p.w, "%d/%d %v %s\n", p.past+1, p.all, spent, what)
	}
	p.past++
}

// tell tells what is done that is no trial.
func (p *progress) tell(what string) {
	if p.terminal {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s", what)
	} else {
		_, _ = fmt.Fprintf(p.w, "%v %s\n", time.Since(p.began).Round(time.Second), what)
	}
}

// done takes the bar away.
func (p *progress) done() {
	if p.terminal {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
	}
}
