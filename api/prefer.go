package api

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
)

// preference is what the header Prefer (RFC 7240) asks for. Unknown preferences are ignored.
type preference struct {
	wait    time.Duration
	isAsync bool
	applied []string
}

// parsePrefer returns the preference of a request.
func parsePrefer(header http.Header) (p preference, err error) {
	hasWait := false
	for _, line := range header.Values("Prefer") {
		for line != "" {
			var part string
			part, line = cutUnquoted(line, ',')
			word, _ := cutUnquoted(part, ';') // its parameters
			name, value := cutUnquoted(word, '=')
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "respond-async":
				if !p.isAsync {
					p.isAsync = true
					p.applied = append(p.applied, "respond-async")
				}
			case "wait":
				if hasWait {
					continue // the first one counts
				}
				if p.wait, err = parseWait("Prefer", unquote(strings.TrimSpace(value))); err != nil {
					return p, err
				}
				hasWait = true
				p.applied = append(p.applied, "wait="+strconv.Itoa(int(p.wait.Seconds())))
			}
		}
	}
	return p, nil
}

// cutUnquoted returns the text before and after the first separator outside of quoted strings (RFC 9110, 5.6.4). A
// quoted string without an end extends to the end of the text.
func cutUnquoted(text string, separator byte) (before, after string) {
	isQuoted := false
	for i := 0; i < len(text); i++ {
		switch {
		case isQuoted && text[i] == '\\':
			i++ // the next byte is no quote
		case text[i] == '"':
			isQuoted = !isQuoted
		case !isQuoted && text[i] == separator:
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}

// unquote returns the content of a quoted string. Other texts are returned as they are.
func unquote(text string) string {
	if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
		return text
	}
	var content strings.Builder
	for i := 1; i < len(text)-1; i++ {
		if text[i] == '\\' {
			i++
		}
		content.WriteByte(text[i])
	}
	return content.String()
}

// parseWait returns a number of seconds to wait, at most [MaxWait].
func parseWait(field, text string) (time.Duration, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, invalid(field, "wait must be a whole number of seconds, got %s", printable.Short(text, 80))
	}
	return min(time.Duration(n)*time.Second, MaxWait), nil
}

// setApplied reports the preferences that were applied.
func (p preference) setApplied(w http.ResponseWriter) {
	if len(p.applied) > 0 {
		w.Header().Set("Preference-Applied", strings.Join(p.applied, ", "))
	}
}
