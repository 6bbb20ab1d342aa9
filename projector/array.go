package projector

import (
	"strconv"
	"strings"
	"time"
)

// array builds an array literal: statements take arrays as plain text and cast them, so that
// they work in every query mode of pgx and through poolers.
type array struct{ text []byte }

var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func (a *array) separate() {
	if a.empty() {
		a.text = append(a.text, '{')
	} else {
		a.text = append(a.text, ',')
	}
}

func (a *array) add(s string) {
	a.separate()
	a.text = append(a.text, '"')
	if strings.ContainsAny(s, `\"`) {
		s = escaper.Replace(s)
	}
	a.text = append(a.text, s...)
	a.text = append(a.text, '"')
}

// addOptional adds NULL for the empty string.
func (a *array) addOptional(s string) {
	if s != "" {
		a.add(s)
		return
	}
	a.separate()
	a.text = append(a.text, "NULL"...)
}

func (a *array) addInt(n int64) {
	a.separate()
	a.text = strconv.AppendInt(a.text, n, 10)
}

// addTime adds a time to the microsecond, as the database keeps it.
func (a *array) addTime(t time.Time) {
	a.separate()
	a.text = append(a.text, '"')
	a.text = t.UTC().AppendFormat(a.text, "2006-01-02T15:04:05.999999Z")
	a.text = append(a.text, '"')
}

// addOptionalTime adds NULL for the zero time.
func (a *array) addOptionalTime(t time.Time) {
	if !t.IsZero() {
		a.addTime(t)
		return
	}
	a.addOptional("")
}

func (a *array) empty() bool { return len(a.text) == 0 }

func (a *array) String() string {
	if a.empty() {
		return "{}"
	}
	return string(a.text) + "}"
}
