package backends

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// link is a connection to a server process.
type link struct {
	conn       net.Conn
	parameters string // of its startup message, in one order
	greeting   []byte // the server's messages after it accepted the login
	process    uint32
}

// parametersOf returns the parameters of a startup message. It reports false for other first messages, such as a
// request to cancel.
func parametersOf(message []byte) (string, bool) {
	var startup pgproto3.StartupMessage
	if len(message) < 8 || startup.Decode(message[4:]) != nil {
		return "", false
	}
	text := fmt.Sprintf("%d", startup.ProtocolVersion)
	for _, name := range slices.Sorted(maps.Keys(startup.Parameters)) {
		text += fmt.Sprintf(" %q=%q", name, startup.Parameters[name])
	}
	return text, true
}

// isAlive reports whether the server still waits for a statement: it has sent nothing.
func (l *link) isAlive() bool {
	if l.conn.SetReadDeadline(time.Unix(1, 0)) != nil {
		return false
	}
	var one [1]byte
	n, err := l.conn.Read(one[:])
	var timeout net.Error
	isQuiet := n == 0 && errors.As(err, &timeout) && timeout.Timeout()
	return isQuiet && l.conn.SetReadDeadline(time.Time{}) == nil
}

// reset restores the session: settings, statements, temporary tables, locks, and channels that it listens to.
func (l *link) reset() error {
	if err := l.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	frontend := pgproto3.NewFrontend(l.conn, l.conn)
	frontend.Send(&pgproto3.Query{String: "discard all"})
	if err := frontend.Flush(); err != nil {
		return err
	}
	for {
		message, err := frontend.Receive()
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *pgproto3.ErrorResponse:
			return errors.New(m.Message)
		case *pgproto3.ReadyForQuery:
			return l.conn.SetDeadline(time.Time{})
		}
	}
}

// end ends the session.
func (l *link) end() {
	_, _ = l.conn.Write([]byte{'X', 0, 0, 0, 4})
	_ = l.conn.Close()
}

// frames follows the messages of one direction: a type, a length and a body each.
type frames struct {
	header []byte // of a message that has begun, up to five bytes
	rest   int    // of the message's body
	each   func(kind byte)
	body   func(kind byte, part []byte) // nil: not wanted
}

// isBetween reports whether no message has begun that has not ended.
func (f *frames) isBetween() bool { return len(f.header) == 0 }

// follow takes the next bytes.
func (f *frames) follow(b []byte) {
	for len(b) > 0 {
		if len(f.header) < 5 {
			n := min(5-len(f.header), len(b))
			f.header, b = append(f.header, b[:n]...), b[n:]
			if len(f.header) < 5 {
				return
			}
			f.rest = int(binary.BigEndian.Uint32(f.header[1:])) - 4
		}
		n := min(f.rest, len(b))
		if f.body != nil {
			f.body(f.header[0], b[:n])
		}
		f.rest -= n
		b = b[n:]
		if f.rest == 0 {
			kind := f.header[0]
			f.header = f.header[:0]
			f.each(kind)
		}
	}
}
