package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
)

// Record is an event in an archive.
type Record = seal.Sealed

// KeyHash returns the hash by which the index finds a task: the first 16 bytes of the SHA-256 of its kind, a slash and
// its biz_id.
func KeyHash(k ledger.Key) [16]byte {
	sum := sha256.Sum256([]byte(string(k.Kind) + "/" + string(k.BizID)))
	return [16]byte(sum[:16])
}

// appendLine appends the line of a record: the text of json.Marshal without HTML escapes, and a newline.
func appendLine(to []byte, r *Record) []byte {
	to = appendInt(append(to, '{'), `"position":`, int64(r.Position))
	to = appendString(to, `,"kind":`, string(r.Kind))
	to = appendString(to, `,"biz_id":`, string(r.BizID))
	to = appendInt(to, `,"version":`, int64(r.Version))
	to = append(to, `,"run":`...)
	if r.Run == nil {
		to = append(to, "null"...)
	} else {
		to = strconv.AppendInt(to, int64(*r.Run), 10)
	}
	to = appendInt(to, `,"attempt":`, int64(r.Attempt))
	to = appendString(to, `,"type":`, r.Type)
	to = r.RecordedAt.UTC().AppendFormat(append(to, `,"recorded_at":"`...), "2006-01-02T15:04:05.999999999Z07:00")
	to = appendInt(to, `","login_id":`, int64(r.LoginID))
	to = appendInt(to, `,"shard":`, int64(r.Shard))
	to = appendInt(to, `,"data_version":`, int64(r.DataVersion))
	to = appendInt(to, `,"priority":`, int64(r.Priority))
	to = appendOptional(to, `,"order_key":`, r.OrderKey)
	to = appendOptional(to, `,"partition":`, r.Partition)
	to = appendOptional(to, `,"data":`, r.Data)
	to = appendOptional(to, `,"meta":`, r.Meta)
	to = appendOptional(to, `,"actor":`, r.Actor)
	to = appendInt(to, `,"xid":`, r.XID)
	to = append(to, `,"leaf":`...)
	if r.Leaf == nil {
		to = append(to, "null"...)
	} else {
		to = strconv.AppendInt(to, *r.Leaf, 10)
	}
	to = append(to, `,"salt":`...)
	if r.Salt == nil {
		return append(to, "null}\n"...)
	}
	to = base64.StdEncoding.AppendEncode(append(to, '"'), r.Salt)
	return append(to, "\"}\n"...)
}

func appendInt(to []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(to, name...), n, 10)
}

func appendOptional(to []byte, name string, text *string) []byte {
	if text == nil {
		return append(append(to, name...), "null"...)
	}
	return appendString(to, name, *text)
}

// appendString appends a member with the escapes of json.Encoder without EscapeHTML.
func appendString(to []byte, name, text string) []byte {
	to = append(append(to, name...), '"')
	begin := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(text[i:])
			if r == '\u2028' || r == '\u2029' {
				to = fmt.Appendf(append(to, text[begin:i]...), "\\u%x", r)
				begin = i + size
			}
			i += size
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' && c != 0x7f {
			i++
			continue
		}
		to = append(to, text[begin:i]...)
		switch c {
		case '"', '\\':
			to = append(to, '\\', c)
		case '\b':
			to = append(to, '\\', 'b')
		case '\f':
			to = append(to, '\\', 'f')
		case '\n':
			to = append(to, '\\', 'n')
		case '\r':
			to = append(to, '\\', 'r')
		case '\t':
			to = append(to, '\\', 't')
		case 0x7f:
			to = append(to, c)
		default:
			to = fmt.Appendf(to, "\\u%04x", c)
		}
		i++
		begin = i
	}
	return append(append(to, text[begin:]...), '"')
}

var errLine = errors.New("a line is not in the form in which records are written")

// parseLine returns the record of a line. Any text that appendLine would not write is an error: a reader could
// take it for another event.
func parseLine(line []byte) (Record, error) {
	r, ok := (&lineParser{rest: line}).record()
	if !ok || !utf8.Valid(line) {
		return Record{}, errLine
	}
	written := appendLine(make([]byte, 0, len(line)+1), &r)
	if !bytes.Equal(written[:len(written)-1], line) {
		return Record{}, errLine
	}
	return r, nil
}

// lineParser parses the text that appendLine writes, several times as fast as package json. It accepts other texts,
// which parseLine refuses.
type lineParser struct {
	rest   []byte
	failed bool
}

// record parses a line.
func (p *lineParser) record() (r Record, ok bool) {
	r.Position = ledger.Position(p.number(`{"position":`, 64))
	r.Kind = ledger.Kind(p.text(`,"kind":`))
	r.BizID = ledger.BizID(p.text(`,"biz_id":`))
	r.Version = ledger.Version(p.number(`,"version":`, 32))
	if !p.isNull(`,"run":`) {
		run := int32(p.number("", 32))
		r.Run = &run
	}
	r.Attempt = ledger.Attempt(p.number(`,"attempt":`, 32))
	r.Type = p.text(`,"type":`)
	at, err := time.Parse(time.RFC3339Nano, p.text(`,"recorded_at":`))
	r.RecordedAt = at.UTC()
	r.LoginID = int32(p.number(`,"login_id":`, 32))
	r.Shard = int16(p.number(`,"shard":`, 16))
	r.DataVersion = int16(p.number(`,"data_version":`, 16))
	r.Priority = int16(p.number(`,"priority":`, 16))
	r.OrderKey, r.Partition = p.optional(`,"order_key":`), p.optional(`,"partition":`)
	r.Data, r.Meta, r.Actor = p.optional(`,"data":`), p.optional(`,"meta":`), p.optional(`,"actor":`)
	r.XID = p.number(`,"xid":`, 64)
	if !p.isNull(`,"leaf":`) {
		leaf := p.number("", 64)
		r.Leaf = &leaf
	}
	if !p.isNull(`,"salt":`) {
		var saltErr error
		r.Salt, saltErr = base64.StdEncoding.DecodeString(p.text(""))
		err = errors.Join(err, saltErr)
	}
	return r, err == nil && !p.failed && string(p.rest) == "}"
}

// skip passes over a text that must be next.
func (p *lineParser) skip(text string) {
	if len(p.rest) < len(text) || string(p.rest[:len(text)]) != text {
		p.failed = true
		return
	}
	p.rest = p.rest[len(text):]
}

// isNull passes over a name, and over null if it follows.
func (p *lineParser) isNull(name string) bool {
	p.skip(name)
	rest, isNull := bytes.CutPrefix(p.rest, []byte("null"))
	p.rest = rest
	return isNull
}

// number parses a name and an integer of so many bits.
func (p *lineParser) number(name string, bits int) int64 {
	p.skip(name)
	end := bytes.IndexAny(p.rest, ",}")
	if p.failed || end < 0 {
		p.failed = true
		return 0
	}
	n, err := strconv.ParseInt(string(p.rest[:end]), 10, bits)
	p.rest, p.failed = p.rest[end:], err != nil
	return n
}

// optional parses a name, and null or a string.
func (p *lineParser) optional(name string) *string {
	if p.isNull(name) {
		return nil
	}
	text := p.text("")
	return &text
}

// text parses a name and a string.
func (p *lineParser) text(name string) (text string) {
	p.skip(name)
	p.skip(`"`)
	end := bytes.IndexByte(p.rest, '"')
	if p.failed || end < 0 {
		p.failed = true
		return ""
	}
	if escape := bytes.IndexByte(p.rest[:end], '\\'); escape < 0 {
		text, p.rest = string(p.rest[:end]), p.rest[end+1:]
		return text
	}
	for end = 0; end < len(p.rest) && p.rest[end] != '"'; end++ {
		if p.rest[end] == '\\' {
			end++
		}
	}
	if end >= len(p.rest) {
		p.failed = true
		return ""
	}
	quoted := append(append([]byte{'"'}, p.rest[:end]...), '"')
	p.rest, p.failed = p.rest[end+1:], json.Unmarshal(quoted, &text) != nil
	return text
}

// marshalFile returns the content of a file of JSON.
func marshalFile(value any) ([]byte, error) {
	text, err := json.MarshalIndent(value, "", "  ")
	return append(text, '\n'), err
}
