package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
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

const (
	// leastRoom is the width of a column from which a text in it is shortened, and not moved to lines of its own.
	leastRoom = 40
	// columnGap is the number of blanks between two columns.
	columnGap = 2
	// belowIndent is the indent of columns and texts on lines of their own.
	belowIndent = "    "
)

// render writes a table. If it is wider than the screen, long cells are shortened in their middle. If that does not
// suffice, columns that do not fit are on further lines of each row. A text in the last column is shortened, or wrapped
// on lines of its own.
func (s *screen) render(h *headed) {
	if !s.isWhole {
		h = h.shrunk(s.width)
	}
	widths := h.widths()
	isText := h.endsWithText(widths)
	var parts [][]int // columns by line
	room := 0
	for i, width := range widths {
		switch {
		case width == 0: // a column without cells that is left out
			continue
		case i == len(widths)-1 && isText: // if its header fits, fit makes room for each text
			width = text.StringWidth(fmt.Sprint(h.header[i]))
		}
		if room -= width; room < 0 || len(parts) == 0 {
			parts, room = append(parts, nil), s.width-width
			if len(parts) > 1 {
				room -= len(belowIndent)
			}
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], i)
		room -= columnGap
	}
	rows := h.lines() // of the header and of each row
	lines := make([][]string, len(h.rows)+1)
	for n, columns := range parts {
		indent := ""
		if n > 0 {
			indent = belowIndent
		}
		last := len(indent)
		for _, i := range columns[:len(columns)-1] {
			last += widths[i] + columnGap
		}
		for i, line := range strings.Split(h.part(columns).Render(), "\n") {
			line = strings.TrimRight(indent+line, " ")
			switch {
			case i == 0:
				line = bold.on(line)
			case isText && columns[len(columns)-1] == len(widths)-1:
				line = s.fit(line, last)
			case len(columns) == 1:
				line = s.wrap(line, last)
			}
			if line != "" {
				lines[rows[i]] = append(lines[rows[i]], line)
			}
		}
	}
	for _, row := range lines {
		fmt.Fprintln(s, strings.Join(row, "\n"))
	}
}

// lines returns the row of each line, 0 for the header: a cell may have several lines.
func (h *headed) lines() []int {
	rows := []int{0}
	for i, row := range h.rows {
		most := 0
		for _, cell := range row {
			most = max(most, strings.Count(fmt.Sprint(cell), "\n"))
		}
		rows = append(rows, slices.Repeat([]int{i + 1}, most+1)...)
	}
	return rows
}

// shrunk returns the table with long cells shortened, so that it fits a width, or the table itself if that does not
// suffice. Numbers, paints and the last column stay as they are.
func (h *headed) shrunk(width int) *headed {
	widths := h.widths()
	last := len(widths) - 1
	if h.endsWithText(widths) {
		widths[last] = text.StringWidth(fmt.Sprint(h.header[last]))
	}
	total := -columnGap
	for _, w := range widths {
		if w > 0 {
			total += w + columnGap
		}
	}
	most := slices.Clone(widths)
	for total > width {
		widest := -1
		for i, w := range most[:last] {
			if w > leastRoom && !slices.Contains(h.numbers, i+1) && (widest < 0 || w > most[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return h
		}
		most[widest]--
		total--
	}
	if slices.Equal(most, widths) {
		return h
	}
	one := &headed{header: h.header, numbers: h.numbers, isSparse: h.isSparse}
	for _, row := range h.rows {
		row = slices.Clone(row)
		for i, cell := range row[:min(last, len(row))] {
			row[i] = shortenMiddle(fmt.Sprint(cell), most[i])
		}
		one.rows = append(one.rows, row)
	}
	return one
}

// shortenMiddle returns a text that is at most so wide: beginning and end of a longer one. Names that belong together
// often differ at their end. A text with paints stays as it is.
func shortenMiddle(s string, width int) string {
	if text.StringWidthWithoutEscSequences(s) <= width || paints.MatchString(s) {
		return s
	}
	all := []rune(s)
	from, to := len(all), len(all)
	for room, i := width/3, len(all)-1; i >= 0 && room >= text.RuneWidth(all[i]); i-- {
		room -= text.RuneWidth(all[i])
		from = i
	}
	for room, i := width-width/3-1, 0; i < from; i++ {
		if room -= text.RuneWidth(all[i]); room < 0 {
			to = i
			break
		}
	}
	return string(all[:min(to, from)]) + "…" + string(all[from:])
}

// widths returns the width of each column, 0 for a column that is left out because its cells are empty.
func (h *headed) widths() []int {
	widths := make([]int, len(h.header))
	for _, row := range h.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], text.LongestLineLen(fmt.Sprint(cell)))
		}
	}
	for i, name := range h.header {
		if widths[i] > 0 || !h.isSparse {
			widths[i] = max(widths[i], text.StringWidth(fmt.Sprint(name)))
		}
	}
	return widths
}

// endsWithText reports whether the last column contains texts that may be shortened.
func (h *headed) endsWithText(widths []int) bool {
	return widths[len(widths)-1] > leastRoom && !slices.Contains(h.numbers, len(widths))
}

// part returns a table with some of the columns.
func (h *headed) part(columns []int) table.Writer {
	var header []any
	var numbers []int
	for n, i := range columns {
		header = append(header, h.header[i])
		if slices.Contains(h.numbers, i+1) {
			numbers = append(numbers, n+1)
		}
	}
	t := newTable(header, numbers...)
	for _, row := range h.rows {
		var cells table.Row
		for _, i := range columns {
			if i < len(row) {
				cells = append(cells, row[i])
			}
		}
		t.AppendRow(cells)
	}
	return t
}

// fit returns a line of a table whose last column, from a place on, is a text, so that it fits the screen: the text is
// shortened, or wrapped on lines of its own.
func (s *screen) fit(line string, last int) string {
	if text.StringWidthWithoutEscSequences(line) <= s.width {
		return line
	}
	i := byteAt(line, last)
	if room := s.width - last; room >= leastRoom && !s.isWhole {
		return line[:i] + shorten(line[i:], room)
	}
	return s.wrap(line, last)
}

// wrap returns a line whose last cell is on lines of its own if it does not fit.
func (s *screen) wrap(line string, last int) string {
	if text.StringWidthWithoutEscSequences(line) <= s.width {
		return line
	}
	i := byteAt(line, last)
	var all []string
	if row := strings.TrimRight(line[:i], " "); row != "" {
		all = append(all, row)
	}
	for part := range strings.Lines(text.WrapSoft(line[i:], max(leastRoom, s.width-len(belowIndent)))) {
		all = append(all, belowIndent+strings.TrimRight(part, " \n"))
	}
	return strings.Join(all, "\n")
}

// writeProse writes a sentence, wrapped between words on a terminal. indent begins its other lines.
func writeProse(w io.Writer, sentence, indent string) {
	if s, isScreen := w.(*screen); isScreen && s.width > 0 {
		lines := strings.Split(text.WrapSoft(sentence, max(leastRoom, s.width-len(indent))), "\n")
		for i := range lines {
			lines[i] = strings.TrimRight(lines[i], " ")
		}
		sentence = strings.Join(lines, "\n"+indent)
	}
	fmt.Fprintln(w, sentence)
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
