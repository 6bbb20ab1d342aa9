package backends

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a client's connection.
type conn struct {
	dialer           *Dialer
	network, address string

	link    atomic.Pointer[link] // nil until the first message
	begun   chan struct{}        // is closed after that, or with the connection
	pending []byte               // of the greeting of a link from the shelf; belongs to the reader

	mu       sync.Mutex // guards the fields below
	sent     frames     // by the client, after the startup message
	received frames
	greeting []byte // of a new link, so far
	message  []byte // of the server, while the greeting is read
	owed     int    // messages after which the server is to report that it is ready, for which it has not
	isReady  bool   // it has been so once
	isIdle   bool   // outside a transaction, when it was last ready
	isBroken bool   // an operation has failed
	isEnded  bool   // the client has ended the session
	isClosed bool
}

func (c *conn) Write(b []byte) (int, error) {
	l := c.link.Load()
	if l == nil {
		return c.begin(b)
	}
	c.mu.Lock()
	if len(b) == 5 && b[0] == 'X' && c.isClean() && c.dialer.keeps() {
		c.isEnded = true
		c.mu.Unlock()
		return len(b), nil
	}
	c.sent.follow(b)
	c.mu.Unlock()
	n, err := l.conn.Write(b)
	c.note(err)
	return n, err
}

// begin takes the first message.
func (c *conn) begin(b []byte) (int, error) {
	defer c.endWait()
	parameters, isStartup := parametersOf(b)
	if isStartup {
		if l := c.dialer.shelf.take(parameters); l != nil {
			c.follow(0)
			c.mu.Lock()
			c.isReady, c.isIdle = true, true
			c.mu.Unlock()
			c.pending = l.greeting
			c.link.Store(l)
			return len(b), nil
		}
	}
	d := net.Dialer{Timeout: patience}
	raw, err := d.Dial(c.network, c.address)
	if err != nil {
		return 0, err
	}
	c.follow(1)
	c.link.Store(&link{conn: raw, parameters: parameters})
	return raw.Write(b)
}

func (c *conn) endWait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.begun:
	default:
		close(c.begun)
	}
}

// follow begins to follow the messages.
func (c *conn) follow(owed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owed = owed
	c.sent.each = func(kind byte) {
		switch kind {
		case 'Q', 'S', 'F': // query, sync, function call
			c.owed++
		}
	}
	var status byte
	c.received.body = func(kind byte, part []byte) {
		if !c.isReady {
			c.message = append(c.message, part...)
		}
		if kind == 'Z' && len(part) > 0 {
			status = part[len(part)-1]
		}
	}
	c.received.each = func(kind byte) {
		if !c.isReady {
			c.greet(kind)
		}
		if kind == 'Z' {
			c.owed--
			c.isReady, c.isIdle = true, status == 'I'
		}
	}
}

// greet takes a message of the server before it is ready for the first time. c.mu is held.
func (c *conn) greet(kind byte) {
	body := c.message
	c.message = nil
	switch kind {
	case 'R':
		if len(body) != 4 || binary.BigEndian.Uint32(body) != 0 {
			return // about the password
		}
	case 'K':
		c.link.Load().process = binary.BigEndian.Uint32(body)
	case 'S', 'Z', 'v':
	default:
		return
	}
	c.greeting = append(c.greeting, kind)
	c.greeting = binary.BigEndian.AppendUint32(c.greeting, uint32(4+len(body)))
	c.greeting = append(c.greeting, body...)
}

func (c *conn) Read(b []byte) (int, error) {
	<-c.begun // pgconn begins to read when a write takes long
	l := c.link.Load()
	if l == nil {
		return 0, net.ErrClosed
	}
	if len(c.pending) > 0 {
		n := copy(b, c.pending)
		c.pending = c.pending[n:]
		return n, nil
	}
	c.mu.Lock()
	isEnded := c.isEnded
	c.mu.Unlock()
	if isEnded { // the server would have ended the connection
		return 0, io.EOF
	}
	n, err := l.conn.Read(b)
	c.mu.Lock()
	c.received.follow(b[:n])
	c.mu.Unlock()
	c.note(err)
	return n, err
}

// note notes that an operation has failed: bytes may be lost.
func (c *conn) note(err error) {
	if err != nil {
		c.mu.Lock()
		c.isBroken = true
		c.mu.Unlock()
	}
}

// Close closes the connection, or puts it on the shelf.
func (c *conn) Close() error {
	c.endWait()
	l := c.link.Load()
	if l == nil {
		return nil
	}
	c.mu.Lock()
	if c.isClosed { // pgconn closes twice
		c.mu.Unlock()
		return nil
	}
	c.isClosed = true
	isKept := c.isEnded && c.isClean()
	if isKept && l.greeting == nil {
		l.greeting = c.greeting
	}
	c.mu.Unlock()
	if isKept {
		c.dialer.shelf.put(l)
		return nil
	}
	return l.conn.Close()
}

// isClean reports whether the server waits for a statement outside a transaction, and nothing is on its way. c.mu is
// held.
func (c *conn) isClean() bool {
	return !c.isBroken && c.isReady && c.isIdle && c.owed == 0 && c.sent.isBetween() && c.received.isBetween() &&
		len(c.pending) == 0
}

func (c *conn) LocalAddr() net.Addr {
	if l := c.link.Load(); l != nil {
		return l.conn.LocalAddr()
	}
	return address{c.network, ""}
}

func (c *conn) RemoteAddr() net.Addr { return address{c.network, c.address} }

// The deadlines of a connection that has not begun do not count: that takes at most [patience].

func (c *conn) SetDeadline(t time.Time) error {
	if l := c.link.Load(); l != nil {
		return l.conn.SetDeadline(t)
	}
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	if l := c.link.Load(); l != nil {
		return l.conn.SetReadDeadline(t)
	}
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	if l := c.link.Load(); l != nil {
		return l.conn.SetWriteDeadline(t)
	}
	return nil
}

// address is the address of a server.
type address struct{ network, text string }

func (a address) Network() string { return a.network }
func (a address) String() string  { return a.text }
