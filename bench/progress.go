package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// progress prints the progress of the run: a bar on a terminal, otherwise a line for each trial.
type progress struct {
	w        io.Writer
	terminal bool
	began    time.Time
	total    int // trials of the run
	started  int // trials
}

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	return &progress{w: w, terminal: ok && term.IsTerminal(int(f.Fd())), began: time.Now()}
}

// expect adds n to the trials of the run.
func (p *progress) expect(n int) { p.total += n }

// begin prints the name of the trial that begins.
func (p *progress) begin(what string) {
	const width = 24
	spent := time.Since(p.began).Round(time.Second)
	if p.terminal {
		full := width * p.started / max(p.total, 1)
		bar := strings.Repeat("#", full) + strings.Repeat(".", width-full)
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K[%s] %d/%d %v %s", bar, p.started+1, p.total, spent, what)
	} else {
		_, _ = fmt.Fprintf(p.w, "%d/%d %v %s\n", p.started+1, p.total, spent, what)
	}
	p.started++
}

// note prints work that is not a trial.
func (p *progress) note(what string) {
	if p.terminal {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s", what)
	} else {
		_, _ = fmt.Fprintf(p.w, "%v %s\n", time.Since(p.began).Round(time.Second), what)
	}
}

// done removes the bar.
func (p *progress) done() {
	if p.terminal {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
	}
}
