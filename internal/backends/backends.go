// Package backends keeps connections to PostgreSQL, so that a later pool continues with a server process that knows
// the catalog. It is for tests, which open many pools for a moment: a new process spends 50 to 100 ms of CPU time until
// it has answered the first statements.
package backends

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// MaxIdle is the number of connections that a [Shelf] keeps.
	MaxIdle = 24
	// patience bounds what normally takes a millisecond.
	patience = 5 * time.Second
)

// Shelf keeps the idle connections to one database. It is safe for concurrent use.
type Shelf struct {
	resets sync.WaitGroup // connections that are being reset

	mu       sync.Mutex
	idle     map[string][]*link // by startup parameters
	count    int
	isClosed bool
}

// NewShelf returns an empty shelf.
func NewShelf() *Shelf { return &Shelf{idle: make(map[string][]*link)} }

// Dialer is the source of a pool's connections.
type Dialer struct {
	shelf *Shelf

	mu     sync.Mutex
	isKept bool
}

// Dialer returns a source of connections for one pool.
func (s *Shelf) Dialer() *Dialer { return &Dialer{shelf: s} }

// Keep makes connections that are closed from now on return to the shelf.
func (d *Dialer) Keep() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.isKept = true
}

// Clear is [Shelf.Clear].
func (d *Dialer) Clear() { d.shelf.Clear() }

func (d *Dialer) keeps() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.isKept
}

// Dial is a [pgconn.DialFunc]. It connects when the client sends its startup message: to the server, or to a connection
// from the shelf with the same parameters.
func (d *Dialer) Dial(_ context.Context, network, address string) (net.Conn, error) {
	return &conn{dialer: d, network: network, address: address, begun: make(chan struct{})}, nil
}

var _ pgconn.DialFunc = (*Dialer)(nil).Dial

// Processes returns the IDs of the server processes of the connections on the shelf, after all closed ones have
// arrived there.
func (s *Shelf) Processes() []uint32 {
	s.resets.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []uint32
	for _, links := range s.idle {
		for _, l := range links {
			all = append(all, l.process)
		}
	}
	return all
}

// Close closes the connections on the shelf, and any that arrive there later.
func (s *Shelf) Close() {
	s.mu.Lock()
	s.isClosed = true
	s.mu.Unlock()
	s.Clear()
}

// Clear closes the connections that are on the shelf now.
func (s *Shelf) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, links := range s.idle {
		for _, l := range links {
			l.end()
		}
	}
	clear(s.idle)
	s.count = 0
}

// take returns a connection with these parameters, or nil.
func (s *Shelf) take(parameters string) *link {
	for {
		s.mu.Lock()
		links := s.idle[parameters]
		if len(links) == 0 {
			s.mu.Unlock()
			return nil
		}
		l := links[len(links)-1]
		s.idle[parameters] = links[:len(links)-1]
		s.count--
		s.mu.Unlock()
		if l.isAlive() {
			return l
		}
		_ = l.conn.Close()
	}
}

// put resets a connection and keeps it.
func (s *Shelf) put(l *link) {
	s.resets.Go(func() {
		isClean := l.reset() == nil
		s.mu.Lock()
		defer s.mu.Unlock()
		if !isClean || s.isClosed || s.count >= MaxIdle {
			l.end()
			return
		}
		s.idle[l.parameters] = append(s.idle[l.parameters], l)
		s.count++
	})
}
