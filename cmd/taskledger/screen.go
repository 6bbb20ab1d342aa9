package main

import (
	"bytes"
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// screen is the output of a command for people.
type screen struct {
	bytes.Buffer
	width   int  // of the terminal; 0: not a terminal
	isWhole bool // no text is shortened
}

// screenWidth returns the number of columns of a terminal, 0 for other files.
func screenWidth(to io.Writer) int {
	file, isFile := to.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// column is the place of a column's header in its line.
type column struct{ begin, end int }

const (
	// leastRoom is the width of a column from which a text in it is shortened, and not moved to lines of its own.
	leastRoom = 40
	// belowIndent is the indent of a text on lines of its own.
	belowIndent = "    "
)

// fit returns a line of a table whose last column is a text, so that it fits the screen: the text is shortened, or
// wrapped on lines of its own.
func (s *screen) fit(line string, last column) string {
	if text.StringWidthWithoutEscSequences(line) <= max(s.width, last.end) {
		return line
	}
	i := byteAt(line, last.begin)
	row, cell := strings.TrimRight(line[:i], " "), line[i:]
	if room := s.width - last.begin; room >= leastRoom && !s.isWhole {
		return line[:i] + shorten(cell, room)
	}
	for part := range strings.Lines(text.WrapSoft(cell, max(leastRoom, s.width-len(belowIndent)))) {
		row += "\n" + belowIndent + strings.TrimRight(part, " \n")
	}
	return row
}

// byteAt returns the index of a column in a line with paints.
func byteAt(line string, column int) int {
	for i := 0; i < len(line); {
		if at := paints.FindStringIndex(line[i:]); at != nil && at[0] == 0 {
			i += at[1]
			continue
		}
		if column <= 0 {
			return i
		}
		r := []rune(line[i:min(len(line), i+4)])[0]
		column -= text.RuneWidth(r)
		i += len(string(r))
	}
	return len(line)
}
