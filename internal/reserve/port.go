package reserve

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Below the ranges from which systems take the ports of outgoing connections
// (Linux from 32768, others from 49152): otherwise a client that keeps trying
// to reach a stopped server could be given that server's own port, and the
// server could not start again.
const (
	firstPort = 15000
	lastPort  = 31999
)

// Port returns a port of 127.0.0.1 that nobody listens on at this moment.
// Nothing keeps it free: whoever binds it must be ready to ask for another.
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

// Free returns nil if the port of 127.0.0.1 can be listened on, or the error
// of the attempt.
func Free(port int) error {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	return listener.Close()
}
