package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// hidden stands for a value that is hidden.
const hidden = `"•••"`

// maxShown is the size from which on the rest of a payload is not shown.
const maxShown = 64 << 10

// secretNames are the parts of the names of members whose values are secrets.
var secretNames = []string{"password", "passwd", "secret", "token", "authorization", "cookie", "apikey", "privatekey",
	"cardnumber", "cvv", "cvc", "iban"}

// IsSecret reports whether a JSON member's name looks like a secret: it contains password, secret, token, api_key or
// the like, in any case, with or without _ and -.
func IsSecret(name string) bool {
	name = strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(name))
	for _, part := range secretNames {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// pretty returns JSON with line ends and indentation, in which the values of members that hide names are hidden.
func pretty(text json.RawMessage, hide func(string) bool) string {
	if len(text) == 0 || string(text) == "null" {
		return ""
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	p := &printer{decoder: d, hide: hide}
	if err := p.value("\n"); err != nil && !errors.Is(err, errShown) {
		return "not JSON: its values are hidden"
	}
	shown := lines(p.b.String())
	if p.b.Len() > maxShown {
		shown += fmt.Sprintf("\n… (%d bytes in all)", len(text))
	}
	return shown
}

var errShown = errors.New("enough is shown")

// printer copies JSON.
type printer struct {
	decoder *json.Decoder
	hide    func(string) bool
	b       strings.Builder
}

// value copies the next value. indent is the end of a line and its indentation.
func (p *printer) value(indent string) error {
	if p.b.Len() > maxShown {
		return errShown
	}
	token, err := p.decoder.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		return p.members(indent, "{", "}", true)
	case json.Delim('['):
		return p.members(indent, "[", "]", false)
	}
	return p.scalar(token)
}

func (p *printer) scalar(v any) error {
	e := json.NewEncoder(&lineTrimmer{&p.b})
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// members copies the members of an object or a list up to its end.
func (p *printer) members(indent, begin, end string, isObject bool) error {
	p.b.WriteString(begin)
	n := 0
	for ; p.decoder.More(); n++ {
		if n > 0 {
			p.b.WriteString(",")
		}
		p.b.WriteString(indent + "  ")
		if isObject {
			name, err := p.decoder.Token()
			if err != nil {
				return err
			}
			if err := p.scalar(name); err != nil {
				return err
			}
			p.b.WriteString(": ")
			if text, _ := name.(string); p.hide(text) {
				var skipped json.RawMessage
				if err := p.decoder.Decode(&skipped); err != nil {
					return err
				}
				p.b.WriteString(hidden)
				continue
			}
		}
		if err := p.value(indent + "  "); err != nil {
			return err
		}
	}
	if n > 0 {
		p.b.WriteString(indent)
	}
	p.b.WriteString(end)
	_, err := p.decoder.Token()
	return err
}

// lineTrimmer leaves out line ends, which json.Encoder adds.
type lineTrimmer struct{ io.Writer }

func (w *lineTrimmer) Write(text []byte) (int, error) {
	_, err := w.Writer.Write(bytes.TrimSuffix(text, []byte("\n")))
	return len(text), err
}
