package reserve

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// The range of free ports is below the ports of outgoing connections (from 32768 on Linux, from 49152 on
// others). A client that reconnects to a stopped server could otherwise get that server's port as its
// own, and the server could not restart.
const (
	firstPort = 15000
	lastPort  = 31999
)

// Port returns a port of 127.0.0.1 on which no process listens. Another process may take the port before the caller
// listens on it; then the caller must ask for a new one.
func Port() (int, error) {
	var err error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if err = Free(port); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port from %d to %d on 127.0.0.1: %w", firstPort, lastPort, err)
}

// Free returns nil if a process can listen on the port of 127.0.0.1. Otherwise it returns the error of
// the attempt.
func Free(port int) error { return FreeAt(fmt.Sprintf("127.0.0.1:%d", port)) }

// FreeAt is [Free] for a port of another address, HOST:PORT.
func FreeAt(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return listener.Close()
}
