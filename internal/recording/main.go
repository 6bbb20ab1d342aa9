// Program recording runs a command, and writes an SVG that plays its output: make recording.
//
//	go run ./internal/recording FILE COMMAND [ARG…]
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// maxPause is the longest time between two lines of a recording; longer waits of the command are shortened to it.
	maxPause = 1200 * time.Millisecond
	// lastPause is how long the last line stays before the recording begins again.
	lastPause = 8 * time.Second
	// maxColumns is the number of characters of a line; longer ones are wrapped.
	maxColumns = 108
	// rowHeight is the height of a line, and columnWidth the width of a hundred characters.
	rowHeight, columnWidth = 18, 783
)

// line is a line of output, and when it was written.
type line struct {
	at   time.Duration
	text string
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: recording FILE COMMAND [ARG…]")
		os.Exit(2)
	}
	if err := record(os.Args[1], os.Args[2], os.Args[3:]...); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

// record runs a command and writes its recording, unless the command fails.
func record(file, command string, args ...string) error {
	cmd := exec.Command(command, args...)
	from, to := io.Pipe()
	cmd.Stdout, cmd.Stderr = to, to
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		_ = to.Close() // a pipe in memory
		ended <- err
	}()
	var lines []line
	for s := bufio.NewScanner(from); s.Scan(); {
		fmt.Fprintln(os.Stdout, s.Text())
		lines = append(lines, line{time.Since(began), s.Text()})
	}
	if err := <-ended; err != nil {
		return err
	}
	prompt := "$ " + strings.Join(append([]string{filepath.Base(command)}, args...), " ")
	//nolint:gosec // a document that everybody may read
	return os.WriteFile(file, []byte(render(append([]line{{0, prompt}}, lines...))), 0o644)
}

// wrapped returns the lines with at most maxColumns characters.
func wrapped(lines []line) (all []line) {
	for _, l := range lines {
		text := []rune(l.text)
		for len(text) > maxColumns {
			at := maxColumns
			if blank := strings.LastIndexByte(string(text[:maxColumns]), ' '); blank > maxColumns/2 {
				at = len([]rune(string(text[:maxColumns])[:blank])) + 1
			}
			all = append(all, line{l.at, string(text[:at])})
			text = append([]rune("  "), text[at:]...)
		}
		all = append(all, line{l.at, string(text)})
	}
	return all
}

// render returns an SVG that shows the lines one after another, in a loop. If the browser asks for less motion,
// it shows all of them.
func render(lines []line) string {
	lines = wrapped(lines)
	var shown []time.Duration
	now := 500 * time.Millisecond
	for i, l := range lines {
		if i > 0 {
			now += min(l.at-lines[i-1].at, maxPause)
		}
		shown = append(shown, now)
	}
	whole := now + lastPause
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	var rules, texts strings.Builder
	for i, l := range lines {
		part := 100 * float64(shown[i]) / float64(whole)
		fmt.Fprintf(&rules, "@keyframes k%d{0%%,%.2f%%{opacity:0}%.2f%%,100%%{opacity:1}}\n", i, part, part+0.01)
		class := ""
		if strings.HasPrefix(l.text, "$ ") {
			class = ` class="b"`
		}
		fmt.Fprintf(&texts, "<text x=\"18\" y=\"%d\"%s style=\"animation-name:k%d\">%s</text>\n",
			48+i*rowHeight, class, i, escape.Replace(l.text))
	}
	width, height := maxColumns*columnWidth/100+36, 48+len(lines)*rowHeight
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d">
<style>
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d7dce5;white-space:pre;
animation:%[3]dms linear infinite}
.b{font-weight:bold;fill:#fff}
%[4]s@media (prefers-reduced-motion:reduce){text{animation:none}}
</style>
<rect width="%[1]d" height="%[2]d" rx="9" fill="#12161d"/>
<g fill="#3a414d"><circle cx="22" cy="18" r="5"/><circle cx="40" cy="18" r="5"/><circle cx="58" cy="18" r="5"/></g>
%[5]s</svg>
`, width, height, whole.Milliseconds(), rules.String(), texts.String())
}
