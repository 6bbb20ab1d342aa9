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
	for _, line := range header.Values("Prefer") {
		for part := range strings.SplitSeq(line, ",") {
			word, _, _ := strings.Cut(part, ";") // its parameters
			name, value, _ := strings.Cut(strings.TrimSpace(word), "=")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "respond-async":
				if !p.isAsync {
					p.isAsync = true
					p.applied = append(p.applied, "respond-async")
				}
			case "wait":
				if p.wait != 0 {
					continue // the first one counts
				}
				value = strings.Trim(strings.TrimSpace(value), `"`)
				if p.wait, err = parseWait("Prefer", value); err != nil {
					return p, err
				}
				p.applied = append(p.applied, "wait="+strconv.Itoa(int(p.wait.Seconds())))
			}
		}
	}
	return p, nil
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
