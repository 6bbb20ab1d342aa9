package main

import (
	"errors"
	"net"
	"syscall"
)

// listen opens the address of the HTTP server; nil: address is "".
func listen(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, usagef("--listen must be HOST:PORT or :PORT, got %q", address)
	}
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, failf(exitConflict, "cannot listen on %s: another process listens there", address).
			hinted("stop that process, or name another address with --listen")
	case err != nil:
		return nil, usagef("cannot listen on %s: %s", address, reason(err)).
			hinted("name an address of this machine with --listen, and a port that the user may open")
	}
	return l, nil
}
