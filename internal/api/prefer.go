package api

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// preference is the content of the header Prefer (RFC 7240). Unknown or malformed preferences are ignored.
type preference struct {
	wait    time.Duration
	isAsync bool
	applied []string
}

// parsePrefer returns the preference of a request.
func parsePrefer(header http.Header) (p preference) {
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
				wait, ok := parseWait(unquote(strings.TrimSpace(value)))
				if !ok || hasWait {
					continue // the first one counts
				}
				p.wait, hasWait = wait, true
				p.applied = append(p.applied, "wait="+strconv.Itoa(int(p.wait.Seconds())))
			}
		}
	}
	return p
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

// parseWait returns a whole number of seconds to wait, and whether the text is one. It is at most maxWait, which is
// less than the usual time-out of a proxy, 60 s.
func parseWait(text string) (wait time.Duration, ok bool) {
	n, err := strconv.ParseUint(text, 10, 31)
	if errors.Is(err, strconv.ErrRange) {
		return maxWait, true
	}
	return min(time.Duration(n)*time.Second, maxWait), err == nil
}

// setApplied reports the preferences that were applied.
func (p preference) setApplied(w http.ResponseWriter) {
	if len(p.applied) > 0 {
		w.Header().Set("Preference-Applied", strings.Join(p.applied, ", "))
	}
}
