package main

import (
	"bytes"
	"net"
	"sync"
	"time"
)

// link is a TCP proxy between a part and a server. It is safe for concurrent use.
type link struct {
	from, to string // names
	listener net.Listener

	mu      sync.Mutex
	target  string                // address of the server
	conns   map[net.Conn]net.Conn // of the part, to the server
	cut     chan struct{}         // while not nil nothing passes; it is closed by the cure
	delay   time.Duration
	answers bool // the answers to commits are lost
}

// newLink listens on a free port of 127.0.0.1.
func newLink(from, to, target string) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{from: from, to: to, listener: listener, target: target, conns: make(map[net.Conn]net.Conn)}
	go l.accept()
	return l, nil
}

func (l *link) address() string { return l.listener.Addr().String() }

func (l *link) String() string { return l.from + "-" + l.to }

func (l *link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.serve(client)
	}
}

func (l *link) serve(client net.Conn) {
	l.mu.Lock()
	target := l.target
	l.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	l.mu.Lock()
	l.conns[client] = server
	l.mu.Unlock()
	var pumps sync.WaitGroup
	pumps.Go(func() { l.pump(server, client, false) })
	pumps.Go(func() { l.pump(client, server, true) })
	pumps.Wait()
	l.mu.Lock()
	delete(l.conns, client)
	l.mu.Unlock()
}

// committed is PostgreSQL's answer to COMMIT: CommandComplete with its tag.
var committed = []byte("C\x00\x00\x00\x0bCOMMIT\x00")

// pump copies until one side ends, and then ends both.
func (l *link) pump(to, from net.Conn, isAnswer bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		l.mu.Lock()
		cut, delay, answers := l.cut, l.delay, l.answers
		l.mu.Unlock()
		if cut != nil {
			<-cut
		}
		time.Sleep(delay)
		if isAnswer && answers && bytes.Contains(buffer[:n], committed) {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// stop lets nothing pass until the returned function is called. Connections stay open.
func (l *link) stop() (resume func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	cut := make(chan struct{})
	l.cut = cut
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.cut == cut {
			l.cut = nil
		}
		close(cut)
	})
}

// slow delays each packet until the returned function is called.
func (l *link) slow(delay time.Duration) (cure func()) {
	l.set(func() { l.delay = delay })
	return func() { l.set(func() { l.delay = 0 }) }
}

// loseCommits ends connections in place of the answer to COMMIT, until the returned function is called.
func (l *link) loseCommits() (cure func()) {
	l.set(func() { l.answers = true })
	return func() { l.set(func() { l.answers = false }) }
}

// redirect sends new connections to another server, and ends the open ones.
func (l *link) redirect(target string) {
	l.set(func() { l.target = target })
	l.reset()
}

// reset ends all connections by RST.
func (l *link) reset() {
	l.set(func() {
		for client, server := range l.conns {
			for _, conn := range []net.Conn{client, server} {
				if tcp, ok := conn.(*net.TCPConn); ok {
					_ = tcp.SetLinger(0)
				}
				_ = conn.Close()
			}
		}
	})
}

func (l *link) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// close ends the link and its connections.
func (l *link) close() {
	_ = l.listener.Close()
	l.reset()
}
